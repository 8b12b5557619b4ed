"""Rows: from Arrow record batches to `tf.data`, each row once an epoch, at a known place.

Who owns what:
    arrays     the shape of Arrow columns; the name of the key column (`KEY`)
    digest     the order-free digest of rows
    facts      `ShardFacts`: what is known of one shard (rows, digest, schema, lengths, nulls), as JSON
    shards     `Shards`: what every rank is told of all shards, merged where the ranks meet
    spool      `SpoolWriter`: batches to a nameless file; `Spool`: that file mapped, in canonical order
    named      several named DataFrames in one stream of batches
    handover   a finished spool, or a stream of batches, from one process to another
    columns    which tensor a column becomes; the documented table of types
    convert    Arrow to numpy without a loop over rows
    gather     rows by position, in windows
    buffer_pool  memory that is used again, for windows and for the ring
    position   `Position`: where training stands, the same on every rank
    epochs     which rows come when: steps, orders, resume
    pipeline   windows to `tf.data.Dataset`: the only TensorFlow here
    dataset    `Shard`, `DatasetOptions`, `make_dataset`: what ``ctx.dataset`` calls
    stream     a single pass without a spool
    files      the seam for sources that need no Spark: `FileSource`, `rank_batches`
    parquet    `Parquet`, its first implementation
    feed       `Feed`: all named data of a node, as the context asks for it
    progress   who waits for whom
    source_errors  what a source raised, as one of our errors

The way of a shard::

    task     with SpoolWriter(folder, limit=spool_limit) as writer:
                 for batch in batches: writer.write(batch)      # with the int64 column KEY
                 file = writer.finish()                          # SpoolFile(fd, facts)
             all_facts = gather(file.facts.brief(), file.facts.blobs())   # `merge_briefs`, of every rank with rows
             send_spool(socket, "train", file); file.close()     # the descriptor, not the rows
    node     name, file = receive_spool(socket)
             spool = Spool(file, schema=all_facts.schema); file.close()
             feed = Feed({name: Shard(name=name, rank=rank, spool=spool, facts=all_facts)})
             feed.dataset("train", DatasetOptions(features="x", label="y", batch_size=32))
             feed.position("train"), feed.rows("train"), feed.arrow("train"), feed.progress()

Of files, the batches come from ``rank_batches(source, rank, ranks)``; all else is the same. Without a spool::

    task     facts, batches = first_facts(batches); all_facts = gather(facts.brief(), facts.blobs())
             send_batches(socket, batches)
    node     Feed({name: Stream(name=name, rank=rank, batches=receive_batches(socket), facts=all_facts,
                                most_steps=most_steps)})          # most_steps: the largest of all ranks' numbers

`rank` counts the ranks that hold rows, and `facts.each` has one entry for each of them.

Imports `_plan`, `errors` and `storage`, pyarrow and numpy; TensorFlow only inside functions.
"""
