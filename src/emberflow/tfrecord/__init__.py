"""TFRecord files as a Spark data source, and the codec it stands on."""
