"""Training by Ray Train: one worker per GPU, or core, with negatives gathered over all workers."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.bench.ray_cluster import (
    MAX_TRIES,
    Ray,
    connect_ray,
    exists_on_every_machine,
    is_shared_folder,
    starts_own_ray,
)
from stsbench.core import settings
from stsbench.core.errors import Interrupted, StsbenchError, TrainingError
from stsbench.core.wording import as_one_line
from stsbench.encoders.runs import TrainedRun, find_last_checkpoint
from stsbench.recipes.train import RunTraining, find_finished_run, run_training
from stsbench.recipes.train_plan import TrainPlan

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress, TrainingProgress

POLL_SECONDS = 0.2
"""The seconds between two requests for the progress of workers."""


@contextmanager
def launch_on_ray(
    launcher: str, devices: int | None, on_notice: Callable[[str], None]
) -> Iterator[RunTraining]:
    """Train on the workers of Ray; it is started or joined with the first plan that needs it."""
    with ExitStack() as stack:
        yield RayTraining(launcher, devices, on_notice, stack).train


class _WorkerGroup(NamedTuple):
    """The workers that train together."""

    n_workers: int
    use_gpus: bool


@dataclass
class RayTraining:
    """Trains plans one after another, each by all workers together."""

    launcher: str
    """The name or address of the cluster: ``ray`` or ``ray://HOST:PORT``."""
    devices: int | None
    """The number of devices that train together; None for all GPUs."""
    on_notice: Callable[[str], None]
    """Called with each notice for the user."""
    stack: ExitStack
    """Closes the connection to Ray."""
    has_begun: bool = field(default=False, init=False)
    """Whether the workers of the current plan have begun to train."""

    @cached_property
    def ray(self) -> Ray:
        """The package, connected."""
        return self.stack.enter_context(connect_ray(self.launcher))

    def train(self, plan: TrainPlan, *, on_progress: OnProgress) -> TrainedRun:
        """Train a plan on the workers of a Ray cluster, or return its finished run.

        If a worker is lost, all are started again, up to ``MAX_TRIES`` times in all, and resume
        from the last checkpoint.

        Args:
            plan: The plan of the run: a recipe with a seed, and its folders.
            on_progress: Called with the progress of the first worker.

        Raises:
            StsbenchError: The recipe cannot be trained, or the cluster's machines do not share its
                folders.
        """
        finished = find_finished_run(plan)
        if finished is not None:
            return finished
        # Workers on other machines may have other default folders: so these are fixed here.
        plan = replace(
            plan,
            data=plan.data or settings.data_folder(),
            corpora=plan.corpora or settings.corpora_folder(),
        )
        if not starts_own_ray(self.launcher):
            read_paths = [Path(plan.base or "."), plan.data, plan.corpora, *plan.catalogue.folders]
            check_shared(self.ray, read_paths, plan.out)
        # Whether a worker has reported progress.
        self.has_begun = False
        for n_tries in range(1, MAX_TRIES + 1):
            # Why a worker was lost; None if the run is finished.
            problem = self._fit(plan, on_progress)
            if problem is None:
                break
            checkpoint = find_last_checkpoint(plan.folder)
            start = f"from {checkpoint.name}" if checkpoint else "from the start"
            if n_tries == MAX_TRIES:
                raise TrainingError(
                    f"{plan.folder}: {problem}, {MAX_TRIES} times; run it again to resume {start}"
                )
            self.on_notice(
                f"seed {plan.seed}: {problem}; resumes {start} ({n_tries + 1} of {MAX_TRIES})"
            )
            # A ``fresh`` plan trains anew; once that has begun, further tries must resume it.
            plan = replace(plan, fresh=plan.fresh and not self.has_begun)
        return TrainedRun.read(plan.folder)

    def _choose_workers(self) -> _WorkerGroup:
        """Return how many workers train together, and whether on GPUs.

        GPUs are used if the cluster has any. ``devices`` is the number that the user requests; None
        is for all GPUs.

        Raises:
            StsbenchError: The cluster has fewer devices than requested; or it has no GPU, and no
                number is requested.
        """
        resources = self.ray.cluster_resources()
        use_gpus = bool(resources.get("GPU"))
        n_available = int(resources.get("GPU" if use_gpus else "CPU", 0))
        available = f"{n_available} {'GPUs' if use_gpus else 'cores and no GPU'}"
        if self.devices is None and not use_gpus:
            raise StsbenchError(
                f"`launcher={self.launcher}`: there are {available}; "
                "pass `devices` with the number of cores"
            )
        n_workers = self.devices or n_available
        if n_workers > n_available:
            raise StsbenchError(
                f"`devices={self.devices}`: there are {available}; give at most {n_available}"
            )
        return _WorkerGroup(n_workers, use_gpus)

    def _fit(self, plan: TrainPlan, on_progress: OnProgress) -> str | None:
        """Let the workers of a Ray cluster train a plan, until it is finished or one is lost.

        Args:
            plan: The plan of the run; its folder has the checkpoints to resume from.
            on_progress: Called with the progress of the first worker.

        Returns:
            Why a worker was lost, as text; None if the run is finished.

        Raises:
            StsbenchError: A worker has raised a user error, or the cluster has too few devices.
            Exception: A worker has failed with another error, and none was lost.
            Interrupted: The user stopped the command.
        """
        group = self._choose_workers()
        try:
            from ray import train
            from ray.train.torch import TorchTrainer
        except ImportError as error:
            raise StsbenchError(
                f"`launcher=ray`: {as_one_line(error)}; run: pip install 'stsbench[ray]'"
            ) from error
        with (
            self._forward_progress(on_progress) as report,
            scratch_folder(self.launcher, plan.out) as storage,
        ):
            # The argument of the function that each worker runs.
            config = {"plan": plan, "folder": str(Path.cwd()), "report": report}
            trainer = TorchTrainer(
                _train_on_worker,
                train_loop_config=config,
                scaling_config=train.ScalingConfig(
                    num_workers=group.n_workers, use_gpu=group.use_gpus
                ),
                run_config=train.RunConfig(name="training", storage_path=str(storage)),
            )
            try:
                trainer.fit()
            except train.WorkerGroupError as error:
                # The exceptions by worker; raises one of them if no worker was lost.
                return explain_worker_loss(error.worker_failures)
            except SystemExit as error:
                # Ray raises this after Ctrl-C, when its workers have ended.
                raise Interrupted("stopped; to resume, run it again without `fresh`") from error
        return None

    @contextmanager
    def _forward_progress(
        self, on_progress: OnProgress
    ) -> Iterator[Callable[[TrainingProgress], None]]:
        """Yield a function for workers on other machines, which sends their progress here.

        A queue of Ray carries it; within the block a thread takes it from the queue and calls the
        callback.

        Args:
            on_progress: Called with each progress.
        """
        from ray.util.queue import Queue

        queue = Queue(actor_options={"num_cpus": 0})
        has_ended = threading.Event()

        def forward() -> None:
            """Call ``on_progress`` with what is in the queue, again and again.

            The last time is after the training has ended, which sets the event ``has_ended``.
            ``has_begun`` records that there was any progress.
            """
            is_last = False
            while not is_last:
                # True if the training ends within this time.
                is_last = has_ended.wait(POLL_SECONDS)
                # The process that holds the queue may be lost too.
                with suppress(self.ray.exceptions.RayError):
                    for progress in queue.get_nowait_batch(queue.qsize()):
                        self.has_begun = True
                        on_progress(progress)

        thread = threading.Thread(target=forward, daemon=True)
        thread.start()
        # Sends without waiting for the queue, unlike ``queue.put``.
        put: Any = queue.actor.put_nowait
        try:
            yield put.remote
        finally:
            has_ended.set()
            thread.join()


def explain_worker_loss(failures: Mapping[int, Exception]) -> str:
    """Return as text why a worker was lost, or raise the error by which training has failed.

    Args:
        failures: The exception of each failed worker, by the worker's number (rank).

    Raises:
        StsbenchError: A worker has raised a user error.
        Exception: No worker was lost: the error of the first worker that failed.
    """
    errors = [failures[rank] for rank in sorted(failures)]
    for error in errors:
        if isinstance(error, StsbenchError):
            raise error
    # Ray itself raises an error for a lost worker. The other workers then fail with errors of their
    # own, since they wait for what the lost one would have sent.
    for error in errors:
        if type(error).__module__.startswith("ray."):
            return f"a worker was lost ({as_one_line(error)[:100]})"
    raise errors[0]


def _train_on_worker(config: Mapping[str, Any]) -> None:
    """Train a plan as one of the workers of a cluster; each trains on its part of every batch.

    Args:
        config: ``plan``, the plan; ``folder``, the folder to work in; and ``report``, the function
            to which the first worker passes its progress.
    """
    from ray import train

    is_first = train.get_context().get_world_rank() == 0
    on_progress = config["report"] if is_first else lambda progress: None
    with chdir(config["folder"]):
        # Ray has connected the workers as processes of torch, by which the plan knows this one.
        run_training(config["plan"], on_progress=on_progress)


def check_shared(ray: Ray, read_paths: Iterable[Path | None], written_folder: Path) -> None:
    """Check that all machines of a cluster share the folders of a training.

    Args:
        ray: The package Ray, connected to the cluster.
        read_paths: Paths that are read, beside the current folder; None and paths that do not exist
            are not checked.
        written_folder: The folder that is written to.

    Raises:
        TrainingError: A machine lacks a path, or has another folder under that path; the message
            names the first such path.
    """
    paths = [Path.cwd()]
    paths += [path.absolute() for path in read_paths if path is not None and path.exists()]
    unshared = [path for path in paths if not exists_on_every_machine(ray, path)]
    # It writes a file into the folder, which every machine must see.
    if not is_shared_folder(ray, written_folder.absolute()):
        unshared.append(written_folder)
    if unshared:
        raise TrainingError(
            f"{unshared[0]}: not every machine of the cluster sees it; "
            "training needs shared folders"
        )


@contextmanager
def scratch_folder(launcher: str, parent: Path) -> Iterator[Path]:
    """Make a temporary folder for Ray's own files, which is removed at the end.

    Args:
        launcher: The name or address of the cluster.
        parent: A folder that all machines share. The temporary folder is made in it; for a cluster
            of this machine alone, in the system's folder for temporary files.
    """
    shared_parent = None
    # ``starts_own_ray``: the cluster is started here, on this machine alone.
    if not starts_own_ray(launcher):
        parent.mkdir(parents=True, exist_ok=True)
        shared_parent = parent.absolute()
    folder = Path(tempfile.mkdtemp(prefix=".ray-", dir=shared_parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
