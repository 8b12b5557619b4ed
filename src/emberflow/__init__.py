"""TensorFlow and Keras on Apache Spark."""
