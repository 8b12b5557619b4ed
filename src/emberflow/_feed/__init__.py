"""Rows from Arrow record batches to `tf.data`: each row once per epoch, at a known position.

The task's side is `spool` (or `stream`, for a single pass without a spool) and `handover`. The node's side is `feed`,
which holds one `dataset` per named DataFrame or file source. What all ranks must agree on is in `shards`: counts,
schema and digest of every shard.

With a spool::

    task     with SpoolWriter(folder, limit=spool_limit) as writer:
                 for batch in batches: writer.write(batch)      # with the int64 column KEY
                 file = writer.finish()                          # SpoolFile(fd, facts)
             all_facts = gather(file.facts.brief(), file.facts.blobs())   # `merge_briefs`, of every rank with rows
             send_spool(socket, "train", file); file.close()     # the descriptor, not the rows
    node     name, file = receive_spool(socket)
             spool = Spool(file, schema=all_facts.schema); file.close()
             feed = Feed({name: Shard(name=name, rank=rank, spool=spool, facts=all_facts)})
             feed.dataset("train", DatasetOptions(features="x", label="y", batch_size=32))

Without a spool::

    task     facts, batches = first_facts(batches); all_facts = gather(facts.brief(), facts.blobs())
             send_batches(socket, batches)
    node     Feed({name: Stream(name=name, rank=rank, batches=receive_batches(socket), facts=all_facts,
                                most_steps=most_steps)})          # most_steps: the largest of all ranks' numbers

File sources read their batches with ``rank_batches(source, rank, ranks)``; the rest is the same. `rank` counts the
ranks that hold rows, and `facts.each` has one entry for each of them.

Imports `_plan`, `errors` and `storage`, pyarrow and numpy; TensorFlow only inside functions.
"""
