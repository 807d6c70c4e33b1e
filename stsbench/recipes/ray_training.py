"""Training by Ray Train: a worker a GPU, or core, and each step's negatives gathered over all of them."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.bench.workers import TRIES, Ray, connect_ray, is_alone, is_everywhere, is_shared
from stsbench.core import settings
from stsbench.core.errors import Interrupted, StsbenchError, TrainingError
from stsbench.core.wording import join_lines
from stsbench.encoders.runs import TrainedRun, last_checkpoint
from stsbench.recipes.train import CarryOut, carry_out, find_finished
from stsbench.recipes.train_plan import TrainPlan

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress, TrainingProgress

ASK_SECONDS = 0.2
"""So often are workers asked how far they are."""


@contextmanager
def launched_on_ray(
    on: str, devices: int | None, noticed: Callable[[str], None]
) -> Iterator[CarryOut]:
    """Train on the workers of Ray; it is started or joined with the first plan that is not done."""
    with ExitStack() as stack:
        yield RayTraining(on, devices, noticed, stack).carry_out


@dataclass
class RayTraining:
    """Plans, trained one after another by all workers together."""

    on: str
    devices: int | None
    noticed: Callable[[str], None]
    stack: ExitStack
    heard: bool = field(default=False, init=False)
    """Whether the workers of the plan under way have begun to train."""

    @cached_property
    def ray(self) -> Ray:
        """The package, connected."""
        return self.stack.enter_context(connect_ray(self.on))

    def carry_out(self, plan: TrainPlan, *, on_progress: OnProgress) -> TrainedRun:
        """Train a plan; workers that are lost are started again, and resume from the last checkpoint.

        Raises StsbenchError: as :func:`stsbench.recipes.train.carry_out`; or machines do not share what they need.
        """
        if (done := find_finished(plan)) is not None:
            return done
        plan = replace(
            plan,
            data=plan.data or settings.data_folder(),
            corpora=plan.corpora or settings.corpora_folder(),
        )
        if not is_alone(self.on):
            check_seen(
                self.ray,
                [Path(plan.base or "."), plan.data, plan.corpora, *plan.catalogue.folders],
                plan.out,
            )
        self.heard = False
        for tries in range(1, TRIES + 1):
            if (lost := self._fit(plan, on_progress)) is None:
                break
            kept = last_checkpoint(plan.folder)
            from_where = f"from {kept.name}" if kept else "from the start"
            if tries == TRIES:
                raise TrainingError(
                    f"{plan.folder}: {lost}, {TRIES} times; the same command resumes {from_where}"
                )
            self.noticed(f"seed {plan.seed}: {lost}; resumes {from_where} ({tries + 1} of {TRIES})")
            # What the first try has begun anew is not begun anew again.
            plan = replace(plan, fresh=plan.fresh and not self.heard)
        return TrainedRun.read(plan.folder)

    def _workers(self) -> tuple[int, bool]:
        """How many train together, and whether on GPUs.

        Raises StsbenchError: the cluster has fewer, or no GPU and nobody has said how many cores.
        """
        here = self.ray.cluster_resources()
        kind = "GPU" if here.get("GPU") else "CPU"
        held, what = int(here.get(kind, 0)), {"GPU": "GPUs", "CPU": "cores and no GPU"}[kind]
        if self.devices is None and kind == "CPU":
            raise StsbenchError(
                f"--on {self.on}: there are {held} {what}; pass --devices with the number of cores"
            )
        if (self.devices or held) > held:
            raise StsbenchError(
                f"--devices {self.devices}: there are {held} {what}; give at most {held}"
            )
        return self.devices or held, kind == "GPU"

    def _fit(self, plan: TrainPlan, on_progress: OnProgress) -> str | None:
        """Train; returns why workers were lost, None where all is done."""
        workers, on_gpus = self._workers()
        try:
            from ray import train
            from ray.train.torch import TorchTrainer
        except ImportError as error:
            raise StsbenchError(
                f"--on ray: {join_lines(error)}; run: pip install 'stsbench[ray]'"
            ) from error
        with self._listening(on_progress) as tell, scratch(self.on, plan.out) as notes:
            given = {"plan": plan, "folder": str(Path.cwd()), "tell": tell}
            trainer = TorchTrainer(
                _work,
                train_loop_config=given,
                scaling_config=train.ScalingConfig(num_workers=workers, use_gpu=on_gpus),
                run_config=train.RunConfig(name="training", storage_path=str(notes)),
            )
            try:
                trainer.fit()
            except train.WorkerGroupError as error:
                return explain_worker_loss(error.worker_failures)
            except SystemExit as error:
                # So Ray ends a program after Ctrl-C, when its workers have ended.
                raise Interrupted("stopped; to resume, run it again without --fresh") from error
        return None

    @contextmanager
    def _listening(self, on_progress: OnProgress) -> Iterator[Callable[[TrainingProgress], None]]:
        """What workers call with how far they are, which is reported here; a queue of Ray's between."""
        from ray.util.queue import Queue

        events, ended = Queue(actor_options={"num_cpus": 0}), threading.Event()

        def pass_on() -> None:
            last = False
            while not last:
                last = ended.wait(ASK_SECONDS)
                with suppress(self.ray.exceptions.RayError):
                    for progress in events.get_nowait_batch(events.qsize()):
                        self.heard = True
                        on_progress(progress)

        teller = threading.Thread(target=pass_on, daemon=True)
        teller.start()
        put: Any = events.actor.put_nowait
        try:
            yield put.remote
        finally:
            ended.set()
            teller.join()


def explain_worker_loss(failures: Mapping[int, Exception]) -> str:
    """Why a worker was lost; an error that one of them has raised is raised here."""
    in_order = [failures[rank] for rank in sorted(failures)]
    for error in in_order:
        if isinstance(error, StsbenchError):
            raise error
    for error in in_order:
        # The others fail with it, since they wait for what it would have sent.
        if type(error).__module__.startswith("ray."):
            return f"a worker was lost ({join_lines(error)[:100]})"
    raise in_order[0]


def _work(given: Mapping[str, Any]) -> None:
    """What each worker does: its part of the training; the first one tells how far they are."""
    from ray import train

    first = train.get_context().get_world_rank() == 0
    with chdir(given["folder"]):
        carry_out(given["plan"], on_progress=given["tell"] if first else lambda progress: None)


def check_seen(ray: Ray, read: Iterable[Path | None], written: Path) -> None:
    """Refuse to train where some machine lacks the current folder, one that is read, or sees another that is written.

    Raises TrainingError: names the first.
    """
    needed = [Path.cwd(), *(path.absolute() for path in read if path is not None and path.exists())]
    lacking = [path for path in needed if not is_everywhere(ray, path)]
    if not is_shared(ray, written.absolute()):
        lacking.append(written)
    if lacking:
        raise TrainingError(
            f"{lacking[0]}: not every machine of the cluster sees it; training needs shared folders"
        )


@contextmanager
def scratch(on: str, beside: Path) -> Iterator[Path]:
    """A folder for what Ray notes for itself, where all machines see it: in another, but for one machine; it goes in the end."""
    if not is_alone(on):
        beside.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".ray-", dir=None if is_alone(on) else beside.absolute()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
