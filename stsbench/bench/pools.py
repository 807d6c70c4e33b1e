"""Pools of workers that carry out the jobs of a run: Ray's, and processes of this machine.

Ray's are of this machine or of a cluster. The processes need no Ray: each uses one device, and gets
its jobs by a pipe of its own.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import NamedTuple

from stsbench.bench import ray_cluster, workers
from stsbench.bench.job_run import JobRun
from stsbench.bench.plan import EncoderPlan
from stsbench.bench.run import RunContext, run_locally
from stsbench.bench.workers import FinishedJob, Job, Reference, run_job
from stsbench.core import settings
from stsbench.core.errors import StsbenchError
from stsbench.core.provenance import scoring_versions
from stsbench.encoders.accelerator import use_device
from stsbench.results.record import Result


def run_on_ray(context: RunContext, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Score encoders on tasks by workers of Ray, and yield the Results of all cells.

    A cell is one score: an encoder on a task with a seed. New Results are written as they are
    computed. All are yielded when the last job has ended, in the order of the plans. Cells that
    could not be scored are reported to the run's callbacks, and yield nothing.

    Args:
        context: The run; its plan names Ray's address.
        encoder_plans: The encoders with their cells; if no cell is missing, Ray is not started.
    """
    # All cells have stored results: these are checked and yielded by this process.
    if not any(encoder_plan.missing_cells for encoder_plan in encoder_plans):
        yield from run_locally(context, encoder_plans)
        return
    libraries = {library for encoder_plan in encoder_plans for library in encoder_plan.libraries}
    executor = context.plan.executor
    # Files of encoders are sent to machines that lack them.
    with (
        ray_cluster.connect_ray(executor, libraries) as ray,
        ray_cluster.serve_files(ray),
    ):
        pool = RayPool(ray, is_own_ray=ray_cluster.starts_own_ray(executor), libraries=libraries)
        yield from JobRun(context, pool).results(encoder_plans)


class RayPool:
    """The workers of Ray: one per GPU for jobs that embed, and one per core for others."""

    name = "ray"
    option = "executor"

    def __init__(
        self, ray: ray_cluster.Ray, *, is_own_ray: bool, libraries: Iterable[str] = ()
    ) -> None:
        """Make a pool of Ray's workers without any job.

        Args:
            ray: The package ``ray``, which is connected.
            is_own_ray: Whether Ray runs on this machine only, and not on a cluster.
            libraries: The packages that the encoders name as those that compute their embeddings.
        """
        self.ray = ray
        self.is_own_ray = is_own_ray
        self.versions: Mapping[str, str] = scoring_versions(libraries)
        """The versions on this machine, which every worker must have."""

    @cached_property
    def _report_queue(self) -> ray_cluster.Ray:
        """Ray's queue to which running jobs add their :class:`workers.Report`."""
        from ray.util.queue import Queue

        # If its process is lost, another replaces it; lost reports would only have been shown.
        return Queue(actor_options={"num_cpus": 0, "max_restarts": -1})

    @property
    def _n_gpus(self) -> int:
        """The number of GPUs of all machines."""
        return int(self.ray.cluster_resources().get("GPU", 0))

    @property
    def shares_tokens(self) -> bool:
        """Whether workers tokenize for each other, which they do without GPUs.

        On a GPU each job has a process of its own, which would load the weights only for tokens.
        """
        return not self._n_gpus

    def count_devices(self) -> int:
        """Return the number of GPUs of all machines, or of cores if there are no GPUs."""
        return self._n_gpus or max(1, int(self.ray.cluster_resources().get("CPU", 0)))

    def shares_folder(self, folder: Path) -> bool:
        """Return whether all machines see the same folder, or there is one machine only."""
        return self.is_own_ray or ray_cluster.is_shared_folder(self.ray, folder)

    def put(self, value: object) -> Reference:
        """Store an object in Ray, and return Ray's reference to it."""
        return self.ray.put(value)

    def start(self, job_id: int, job: Job) -> Reference:
        """Start a job on a worker; one that needs a device gets a GPU, if there are any."""
        gpus = 1 if job.needs_device and self._n_gpus else 0
        remote = self.ray.remote(run_job_on_ray).options(
            num_cpus=1, num_gpus=gpus, name=job.label, max_retries=0
        )
        return remote.remote(job_id, self._report_queue, self.versions, job.work, *job.arguments)

    def finished_jobs(self, running_jobs: Mapping[int, Job]) -> Iterator[FinishedJob]:
        """Yield the jobs that have ended, after a wait of at most ``WAIT_SECONDS`` for the first.

        Args:
            running_jobs: The started jobs by id.

        Yields:
            The id of a job, and its result or its error.
        """
        job_id_by_reference = {job.reference: job_id for job_id, job in running_jobs.items()}
        references = list(job_id_by_reference)
        self.ray.wait(references, num_returns=1, timeout=ray_cluster.WAIT_SECONDS)
        # This call does not wait: it also returns jobs that ended while earlier ones were handled.
        ready, _ = self.ray.wait(references, num_returns=len(references), timeout=0)
        for reference in ready:
            outcome = ray_cluster.fetch_result(self.ray, reference)
            yield FinishedJob(job_id_by_reference[reference], outcome)

    def read_reports(self) -> Sequence[workers.Report]:
        """Return the reports that running jobs have sent since the last call."""
        reports: Sequence[workers.Report] = ()
        # If the queue's process was lost, its reports are missing, and the run continues.
        with suppress(self.ray.exceptions.RayError):
            reports = self._report_queue.get_nowait_batch(self._report_queue.qsize())
        return reports

    def cancel(self, job: Job) -> None:
        """End a job by force: its process may hang."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.cancel(job.reference, force=True)

    def stop(self, running_jobs: Sequence[Job]) -> None:
        """Stop running jobs as Ctrl-C does: workers write what they have embedded."""
        ray_cluster.stop_jobs(self.ray, [job.reference for job in running_jobs])


def run_job_on_ray(
    job_id: int,
    report_queue: ray_cluster.Ray,
    versions: Mapping[str, str],
    work: Callable[..., workers.JobResult],
    *arguments: object,
) -> workers.JobResult | Exception:
    """Carry out a job on a worker of Ray, and return its result, or its error as an object.

    Args:
        job_id: The number of the job, which its reports contain.
        report_queue: The queue of the run, which gets the reports on the job's progress.
        versions: The versions that this machine must have, by package; others are an error.
        work: The function of the job; its first argument reports progress.
        arguments: The further arguments of the function.
    """

    def checked_work() -> workers.JobResult:
        # This raises an error if a version differs.
        ray_cluster.check_versions(versions)
        # This method of Ray's queue puts a report into it.
        return run_job(job_id, report_queue.actor.put_nowait.remote, work, *arguments)

    return ray_cluster.call_or_return_error(checked_work)


def run_on_devices(context: RunContext, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Score encoders on tasks by a process for each device, and yield the Results of all cells.

    A cell is one score: an encoder on a task with a seed. New Results are written as they are
    computed. All are yielded when the last job has ended, in the order of the plans. Cells that
    could not be scored are reported to the run's callbacks, and yield nothing.

    Args:
        context: The run; its plan names the devices, such as GPUs.
        encoder_plans: The encoders with their cells; if no cell is missing, no process is started.

    Raises:
        StsbenchError: The plan names no devices, or the encoders' parameters name one too.
    """
    plan = context.plan
    if not plan.devices:
        raise StsbenchError("`executor=devices` needs `devices`, such as 4, or cuda:0,cuda:2")
    if "device" in plan.params:
        raise StsbenchError(
            f"each of the `devices` has encoders of its own; leave out `params=device="
            f"{plan.params['device']}`"
        )
    # All cells have stored results: these are checked and yielded by this process.
    if not any(encoder_plan.missing_cells for encoder_plan in encoder_plans):
        yield from run_locally(context, encoder_plans)
        return
    yield from JobRun(context, ProcessPool(plan.devices)).results(encoder_plans)


class Placeholder(Enum):
    """What stands in the arguments of a sent job for an object that is sent after it."""

    SENT_NEXT = auto()


class SharedValue:
    """The reference to an object, which may be sent to several processes.

    Attributes:
        content: The object as it is sent; None for a result that no job needed yet.
        value: The result of a job; None for another object.
    """

    def __init__(self, content: bytes | None = None) -> None:
        """Refer to an object as it is sent, or to the result of a job that has not ended."""
        self.content = content
        self.value: object = None

    def send(self, connection: Connection) -> None:
        """Send the object to the process at the other end of a connection."""
        if self.content is None:
            self.content = _encode(self.value)
        connection.send_bytes(self.content)


def _encode(value: object) -> bytes:
    """Return an object as connections send it; raises whatever that raises."""
    return bytes(ForkingPickler.dumps(value))


class StartedJob(NamedTuple):
    """A job that is sent to a process.

    Attributes:
        job_id: The job, as its reports name it.
        call: Its id, function and arguments as they are sent.
        arguments: The objects that are sent after it, one for each placeholder in the arguments.
        outcome: The reference to its result.
    """

    job_id: int
    call: bytes
    arguments: Sequence[SharedValue]
    outcome: SharedValue


@dataclass(eq=False)
class DeviceProcess:
    """A process that uses one device."""

    process: BaseProcess
    connection: Connection
    """Sends jobs to the process, and receives its reports and the results of jobs."""
    job: StartedJob | None = None
    """The job that it carries out; None if it waits for one."""


class ProcessPool:
    """Processes of this machine, one per device; each embeds and scores, one job at a time."""

    name = "devices"
    option = "devices"
    shares_tokens = True

    def __init__(self, devices: Sequence[str]) -> None:
        """Make a pool that starts a process per device when there are jobs for it.

        Args:
            devices: The devices, as torch names them; one that occurs twice gets two processes.
        """
        self.devices = devices
        self._processes: dict[int, DeviceProcess] = {}
        """The processes, by the index of the device."""
        self._waiting_jobs: deque[StartedJob] = deque()
        self._reports: list[workers.Report] = []

    def count_devices(self) -> int:
        """Return the number of processes."""
        return len(self.devices)

    def shares_folder(self, folder: Path) -> bool:
        """Return True: all processes are on this machine."""
        return True

    def put(self, value: object) -> Reference:
        """Keep an object for the processes; raises whatever sending it would raise."""
        return SharedValue(_encode(value))

    def start(self, job_id: int, job: Job) -> Reference:
        """Let a process carry out a job, as soon as one is free.

        An argument that is a shared value (an object that ``put`` has stored, or the outcome of an
        earlier job) is sent separately, behind the call: in the call a placeholder stands for it.

        Args:
            job_id: The number of the job, which its reports contain.
            job: The job.

        Returns:
            A reference to the outcome of the job, which is set when the job has ended. Later jobs
            may have it as an argument.
        """
        shared = [argument for argument in job.arguments if isinstance(argument, SharedValue)]
        arguments = [
            Placeholder.SENT_NEXT if isinstance(argument, SharedValue) else argument
            for argument in job.arguments
        ]
        # The bytes to send, made by pickle.
        call = _encode((job_id, job.work, arguments))
        started_job = StartedJob(job_id, call, shared, outcome=SharedValue())
        self._waiting_jobs.append(started_job)
        self._send_jobs()
        return started_job.outcome

    def _send_jobs(self) -> None:
        """Send waiting jobs to processes without a job; a missing process is started first.

        There is one process per device. A job is sent through the process's pipe: the call, then
        its shared arguments.
        """
        for index, device in enumerate(self.devices):
            if not self._waiting_jobs:
                return
            if index not in self._processes:
                self._processes[index] = self._start_process(device)
            process = self._processes[index]
            if process.job is None:
                process.job = self._waiting_jobs.popleft()
                # Sending to a process that has just died fails; its death is handled when its
                # answer is awaited.
                # Shared arguments are objects that `put` has stored, or results of earlier jobs.
                with suppress(OSError):
                    process.connection.send_bytes(process.job.call)
                    for argument in process.job.arguments:
                        argument.send(process.connection)

    def _start_process(self, device: str) -> DeviceProcess:
        """Start a process that carries out jobs on a device.

        Its libraries may use as many threads as its share of the cores.

        Args:
            device: The device, as torch names it.

        Returns:
            The process with this end of the pipe to it.
        """
        context = get_context("spawn")
        connection, connection_of_process = context.Pipe()
        process = context.Process(
            target=carry_out_jobs, args=(connection_of_process, device), name=f"stsbench {device}"
        )
        has_affinity = hasattr(os, "sched_getaffinity")
        n_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        # Ctrl-C in a terminal reaches the new process too. It inherits that the signal is ignored
        # here, so that it is not interrupted while it starts.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            # By an environment variable, which the process inherits.
            with settings.limit_threads(max(1, n_cores // len(self.devices))):
                process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        # While this copy of its end of the pipe were open, the death of the process would not close
        # the pipe, and so would not be noticed.
        connection_of_process.close()
        return DeviceProcess(process, connection)

    def finished_jobs(self, running_jobs: Mapping[int, Job]) -> Iterator[FinishedJob]:
        """Yield the jobs that have ended, after a wait of at most ``WAIT_SECONDS`` for a message.

        A process sends reports on its progress, which are stored, and then the outcome of its job.
        A process that has died is removed, and its job has failed.

        Args:
            running_jobs: Not used: each process knows its job.

        Yields:
            The id of a job, and its result or its error.
        """
        self._send_jobs()
        busy_processes = {
            index: process for index, process in self._processes.items() if process.job is not None
        }
        ready_connections = wait(
            [process.connection for process in busy_processes.values()],
            timeout=ray_cluster.WAIT_SECONDS,
        )
        for index, process in busy_processes.items():
            if process.job is None or process.connection not in ready_connections:
                continue
            try:
                outcome = process.connection.recv()
                if isinstance(outcome, workers.Report):
                    self._reports.append(outcome)
                    continue
                # Later jobs may have this outcome, the result or the error, as an argument.
                process.job.outcome.value = outcome
            # The pipe is closed: the process has died.
            except (EOFError, OSError):
                outcome = ray_cluster.WorkerLost(ray_cluster.LOSS_REASONS["WorkerCrashedError"])
                del self._processes[index]
            job_id = process.job.job_id
            process.job = None
            # A process that has died is replaced by a new one if further jobs wait.
            self._send_jobs()
            yield FinishedJob(job_id, outcome)

    def read_reports(self) -> Sequence[workers.Report]:
        """Return the reports that running jobs have sent since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def cancel(self, job: Job) -> None:
        """End the process of a job; another one replaces it when a job needs it."""
        for index, process in list(self._processes.items()):
            if process.job is not None and process.job.outcome == job.reference:
                process.process.kill()
                del self._processes[index]

    def stop(self, running_jobs: Sequence[Job]) -> None:
        """End all processes.

        One with a job gets the signal of Ctrl-C, so that it still stores what it has embedded. It
        is killed if that takes longer than ``STOP_SECONDS``.

        Args:
            running_jobs: Not used: each process knows its job.
        """
        for device_process in self._processes.values():
            pid = device_process.process.pid
            if device_process.job is not None and pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            # A process without a job ends when its connection is closed.
            device_process.connection.close()
        for device_process in self._processes.values():
            device_process.process.join(ray_cluster.STOP_SECONDS)
            device_process.process.kill()


def carry_out_jobs(connection: Connection, device: str) -> None:
    """Carry out jobs until the run ends: the main function of a process that runs on one device.

    A job arrives as its number, its function and the arguments, with placeholders for arguments
    that are sent next.

    Args:
        connection: Receives jobs, and sends reports and the results of jobs.
        device: The device of torch that encoders with the device ``auto`` use in this process.
    """
    # The process prints nothing, not even what libraries print: standard output and error are
    # directed to the null device. What matters is in the results of jobs.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    # The first Ctrl-C raises KeyboardInterrupt, also in a job; further ones are ignored.
    signal.signal(signal.SIGINT, _interrupt_once)
    # The loop ends by one of these exceptions: the run has closed the connection, its process has
    # died, or a terminal has sent Ctrl-C to all processes.
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            job_id, work, arguments = connection.recv()
            values = [
                connection.recv() if argument is Placeholder.SENT_NEXT else argument
                for argument in arguments
            ]
            _carry_out(connection, device, job_id, work, values)


def _carry_out(
    connection: Connection,
    device: str,
    job_id: int,
    work: Callable[..., workers.JobResult],
    arguments: Sequence[object],
) -> None:
    """Carry out a job, and send its result, or its error as an object.

    Args:
        connection: Sends reports on the progress, and the result.
        device: The device of torch that encoders with the device ``auto`` use.
        job_id: The number of the job, which its reports contain.
        work: The function of the job; its first argument reports progress.
        arguments: The further arguments of the function.
    """

    # It returns None. If a result cannot be sent, this raises an error, which is sent instead.
    def call_and_send() -> None:
        use_device(device)
        connection.send(run_job(job_id, connection.send, work, *arguments))

    # Ctrl-C is no such error: it ends the process.
    error = ray_cluster.call_or_return_error(call_and_send)
    if error is not None:
        connection.send(error)


def _interrupt_once(signal_number: int, frame: object) -> None:
    """Interrupt the job: a terminal and the run may both send the signal, while it is stored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
