"""The methods by which a stage is saved, as Spark's own stages have them."""

from typing import Any, ClassVar

from pyspark.ml.util import MLWritable

from emberflow.ml.saving import StageReader, StageWriter


class SavedStage(MLWritable):
    """A stage that saves and loads itself without the JVM; `load` is its own."""

    _writer: ClassVar[type[StageWriter]]
    load: ClassVar[Any]

    def write(self) -> StageWriter:  # type: ignore[override] # Spark's own needs the JVM
        """Return a writer: ``write().overwrite().save(path)``."""
        return self._writer(self)

    def save(self, path: str) -> None:
        """Save this stage; a path that exists is an error."""
        self.write().save(path)

    @classmethod
    def read(cls) -> StageReader:
        """Return a reader: ``read().load(path)``."""
        return StageReader(cls.load)
