"""TFRecord to Arrow and back: numpy over Arrow buffers, neither TensorFlow nor protobuf.

`decode` reads: `record_frames`, `walk` (or `record_layout` where all records are alike), `lists`, `assemble`.
`encode` writes: `feature_values`, `headers`. `record_parser` reads one record at a time, in every form that
protobuf allows.
"""
