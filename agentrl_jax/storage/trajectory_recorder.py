"""`TrajectoryRecorder`: writes a process's trajectories into the run folder, on a thread."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.storage import trajectory_log
from agentrl_jax.storage.image_store import FOLDER as IMAGE_FOLDER
from agentrl_jax.storage.image_store import ImageStore
from agentrl_jax.storage.segments import SegmentWriter, segment_paths
from agentrl_jax.trajectory_record import TrajectoryRecord

MAX_PENDING = 8  # batches that wait to be written; a further one waits for room
Batch = Sequence[TrajectoryRecord]


class TrajectoryRecorder:
    """Records become lines on one thread; nothing is dropped.

    What fails on the thread is raised by the next call of any method.
    """

    def __init__(
        self, run_dir: Path, process: int, max_bytes: int, log: Callable[[str], None]
    ) -> None:
        """A recorder whose thread starts with the first record.

        Args:
            run_dir: the run folder.
            process: index of this process in the run.
            max_bytes: of this process's segments with all images; beyond it the oldest segments
                are deleted, and the images that no other segment names.
            log: called with a line about what is deleted.
        """
        self._run_dir, self._process, self._log = run_dir, process, log
        folder = run_dir / trajectory_log.FOLDER
        self._images, self._folder = ImageStore(folder / IMAGE_FOLDER), folder
        self._segments = SegmentWriter(folder, process, max_bytes)
        self._batches: queue.Queue[Batch | None] = queue.Queue(MAX_PENDING)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def put(self, records: Batch) -> None:
        """Hand in records to write.

        Raises:
            UserError: earlier ones could not be written, or their `info` is not JSON data.
        """
        self._raise_error()
        if not records:
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write_loop, name="trajectory recorder", daemon=True
            )
            self._thread.start()
        self._batches.put(records)

    @property
    def num_pending(self) -> int:
        """Batches that wait to be written."""
        return self._batches.qsize()

    def flush(self) -> None:
        """Return once all records are in their file."""
        self._batches.join()
        self._raise_error()

    def sync(self) -> dict[str, int]:
        """Bring all records to the disk, keep the size budget, and count each segment's lines."""
        self.flush()
        while (path := self._segments.trim_oldest(self._images.num_bytes)) is not None:
            self._images.prune(segment_paths(self._folder))
            self._log(
                f"{path} was deleted: the record of trajectories has reached its size budget "
                "(config.record_mib)"
            )
        return self._segments.sync()

    def read(self) -> Iterator[TrajectoryRecord]:
        """What this process has recorded, before and after resumptions."""
        self.flush()
        return trajectory_log.read_files(self._segments.paths)

    def reopen(self) -> None:
        """Close the file, so that the segments can be rewritten; the next record opens it again."""
        self.flush()
        self._segments.close()
        self._segments.forget_counts()

    def close(self) -> None:
        """Write what waits, and end the thread; may be called twice."""
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()
            self._thread = None
        self._segments.close()

    def _write_loop(self) -> None:
        while (batch := self._batches.get()) is not None:
            if self._error is None:
                try:
                    self._segments.write(
                        [trajectory_log.record_line(record, self._images) for record in batch]
                    )
                except Exception as error:
                    self._error = error
            self._batches.task_done()
        self._batches.task_done()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if isinstance(error, OSError):
            raise UserError(
                f"cannot write the trajectories of {self._run_dir} "
                f"({error.strerror or type(error).__name__}): free some space or choose another "
                "run folder"
            ) from error
        if error is not None:
            raise error
