"""Rows: from Arrow record batches to `tf.data`, each row once an epoch, at a known place.

Who owns what:
    arrays     the shape of Arrow columns; the name of the key column (`KEY`)
    digest     the order-free digest of rows
    facts      `ShardFacts`: what a shard tells all ranks (rows, digest, schema, lengths, nulls), as JSON
    spool      `SpoolWriter`: batches to a nameless file; `Spool`: that file mapped, in canonical order
    named      several named DataFrames in one stream of batches
    handover   a finished spool, or a stream of batches, from one process to another
    columns    which tensor a column becomes; the documented table of types
    convert    Arrow to numpy without a loop over rows
    gather     rows by position, in windows
    position   `Position`: where training stands, the same on every rank
    epochs     which rows come when: steps, orders, resume
    pipeline   windows to `tf.data.Dataset`: the only TensorFlow here
    dataset    `Shard`, `DatasetOptions`, `make_dataset`: what ``ctx.dataset`` calls
    stream     a single pass without a spool
    files      sources that need no Spark; `Parquet`
    progress   who waits for whom

The way of a shard::

    task     with SpoolWriter(folder, limit=spool_limit) as writer:
                 for batch in batches: writer.write(batch)      # with the int64 column KEY
                 file = writer.finish()                          # SpoolFile(fd, facts)
             all_facts = gather(file.facts.to_json())            # of every rank that holds rows
             send_spool(socket, file, ...)                       # the descriptor, not the rows
    node     spool = Spool(receive_spool(socket), schema=agreed_schema(all_facts))
             shard = Shard(name="train", rank=rank, spool=spool, facts=all_facts)
             feeding = make_dataset(shard, DatasetOptions(features="x", label="y", batch_size=32))
             feeding.dataset, feeding.position()

Imports `_plan`, `errors` and `storage`, pyarrow and numpy; TensorFlow only inside functions.
"""
