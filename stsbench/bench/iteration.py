"""Scores for programs: encoders in any form, scored without writing results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from stsbench.bench.plan import RunPlan, Store, TaskSpecs
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import RunContext, SeenEncoders, report_errors
from stsbench.bench.score import score_tasks
from stsbench.core.catalogue import CATALOGUE, Catalogue
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.names import split_names
from stsbench.core.parameters import (
    COUNT_OR_NONE,
    NAME,
    NAMES,
    PARAMETERS,
    PATH,
    SEED,
    SEEDS_OR_NONE,
    STORE,
    ArgumentKind,
    validate_arguments,
)
from stsbench.data.task import Task
from stsbench.encoders.base import Encoder
from stsbench.encoders.load import check_loadable
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.objects import is_encoder_pair, resolve_encoder
from stsbench.results.record import Result

EncoderLike = (
    Encoder | NamedEncoder | Callable[[list[str]], object] | tuple[object, object] | str | Path
)
"""An encoder as a program may pass it: an encoder, a name, a SentenceTransformer, a function.

A pair is ``(model, tokenizer)`` of transformers, or ``(client, "model")`` of an OpenAI-like client.
"""
EncodersLike = EncoderLike | Sequence[EncoderLike] | Mapping[str, EncoderLike]
"""One encoder, a list of encoders, or a dict of encoders by their names in results."""
NAMING_HINT = "name several by a dict, {'first': …, 'second': …}"
"""How a program gives encoders names of their own."""


def _are_task_specs(argument: object) -> bool:
    """Return whether an argument is a name or a Task, or a list of them."""
    specs = argument if isinstance(argument, Sequence) else [argument]
    return all(isinstance(spec, str | Task) for spec in specs)


CALLBACKS = ArgumentKind(
    lambda value: isinstance(value, RunCallbacks), expected="a stsbench.bench.progress.RunCallbacks"
)


@validate_arguments(
    tasks=ArgumentKind(_are_task_specs, expected="a name, a Task or a list of them"),
    protocol=NAMES,
    data=PATH,
    seed=SEED,
    seeds=SEEDS_OR_NONE,
    params=PARAMETERS,
    split=NAME,
    store=STORE,
    name=NAME,
    batch_size=COUNT_OR_NONE,
    on_error=NAME,
    catalogue=CATALOGUE,
    callbacks=CALLBACKS,
    listener=CALLBACKS,
)
def iterate(
    encoder: EncodersLike,
    tasks: TaskSpecs,
    *,
    protocol: str | Sequence[str] | None = None,
    data: Path | str | None = None,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    params: Mapping[str, Any] | None = None,
    split: str | None = None,
    store: Store = "default",
    on_error: Literal["raise", "skip"] = "raise",
    name: str | None = None,
    batch_size: int | None = None,
    catalogue: Catalogue | None = None,
    callbacks: RunCallbacks | None = None,
    listener: RunCallbacks | None = None,
) -> Iterator[Result]:
    """Score encoders on tasks, and yield each Result as soon as it is computed; none is written.

    The order is encoder by encoder, and of each the order of the tasks. Names and arguments are
    checked at the call; all data are read when the first Result is requested. All sentences of an
    encoder's tasks are embedded before its first score, each distinct sentence once.

    The arguments are those of :func:`stsbench.evaluate`. With ``on_error="skip"`` failures are
    reported to the callbacks. Of several encoders, those given by name are loaded one at a time.
    ``listener`` is the earlier name of ``callbacks``, and is accepted in version 0.1 only.

    Raises:
        StsbenchError: Data or an encoder cannot be used; see :mod:`stsbench.core.errors`.
    """
    look_up("on_error", on_error, {"raise": None, "skip": None})
    catalogue = catalogue or Catalogue()
    callbacks = callbacks or listener or RunCallbacks()
    if on_error != "skip":
        callbacks = callbacks.with_raised_failures()
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        data=data,
        split=split,
        seeds=(int(seed),) if seeds is None else tuple(map(int, seeds)),
        params=params or {},
        store=store,
        catalogue=catalogue,
    )
    _ = plan.planned_tasks  # unknown tasks and protocols are refused at the call
    encoders = _resolve_encoders(encoder, name, plan, batch_size)
    return _score_encoders(plan, encoders, callbacks)


def _resolve_encoders(
    encoders: EncodersLike, name: str | None, plan: RunPlan, batch_size: int | None
) -> list[NamedEncoder | str]:
    """Return the encoders that a program has passed, loaded or as names to load later.

    If there are several, names are only checked, so that one encoder at a time is in memory. A
    single name is loaded at once. Names that are loaded later are compared with the others then.

    Args:
        encoders: The encoders as a program passes them: one, a list, a dict by their names in
            results, or a text of names with commas.
        name: The name that a single encoder gets in results; None for its own. An encoder that is
            specified by a name or path has its name already: to name it again, by this argument or
            by a dict, is an error.
        plan: The settings of the run, with the parameters of encoders to replace.
        batch_size: The largest number of sentences that functions and objects of other libraries
            are called with; None for their defaults.

    Returns:
        An element per encoder, in order: the loaded encoder with its name in results, or a name
        that was checked and is to be loaded later.

    Raises:
        StsbenchError: There is no encoder, one cannot be loaded or cannot have its name, or two
            of those that were loaded cannot be distinguished.
    """
    passed_encoders = _list_encoders(encoders, name)
    has_several = len(passed_encoders) > 1
    resolved: list[NamedEncoder | str] = []
    seen_encoders = SeenEncoders(NAMING_HINT)
    for result_name, encoder in passed_encoders:
        # A name of a dict's key is loaded too, to compare the key with it.
        is_name = isinstance(encoder, str | Path)
        loads_later = has_several and result_name is None and is_name
        if loads_later:
            check_loadable(str(encoder), plan.catalogue)
            resolved.append(str(encoder))
        else:
            # This raises an error for a name or path that has another name in results.
            named_encoder = resolve_encoder(
                encoder,
                plan.catalogue,
                name=result_name,
                batch_size=batch_size,
                params=plan.params,
            )
            resolved.append(named_encoder)
            # This raises an error for two different encoders that results could not distinguish.
            # The same encoder may be listed twice; it is scored once.
            seen_encoders.add(named_encoder)
    return resolved


def _list_encoders(encoders: EncodersLike, name: str | None) -> list[tuple[str | None, object]]:
    """Return a list of the encoders that a program has passed, each with its name in results.

    Args:
        encoders: One encoder, a list of them, a dict by their names in results, or a text of names
            with commas.
        name: The name that a single encoder gets in results; None for its own.

    Returns:
        At least one pair of a name and an encoder; the name is None for the encoder's own.

    Raises:
        StsbenchError: There is no encoder, or several with one name.
    """
    # A text is names with commas, unless it is the path of an encoder. For a text that is too long
    # to be a path, Path.exists would raise an error; os.path.exists returns False.
    if isinstance(encoders, str) and not os.path.exists(encoders):  # noqa: PTH110
        encoders = split_names(encoders)
    if isinstance(encoders, Mapping):
        passed_encoders: list[tuple[str | None, object]] = [*encoders.items()]
    # A pair such as (model, tokenizer) is one encoder.
    elif isinstance(encoders, list | tuple) and not is_encoder_pair(encoders):
        passed_encoders = [(name, encoder) for encoder in encoders]
    else:
        passed_encoders = [(name, encoders)]
    if not passed_encoders:
        raise StsbenchError(
            "no encoder is given; give a name such as minilm, an encoder, or a list of them"
        )
    # A list of one encoder may have a name.
    if name is not None and (len(passed_encoders) > 1 or isinstance(encoders, Mapping)):
        raise StsbenchError(f"name='{name}' is for one encoder; {NAMING_HINT}")
    return passed_encoders


def _score_encoders(
    plan: RunPlan, encoders: Sequence[NamedEncoder | str], callbacks: RunCallbacks
) -> Iterator[Result]:
    """Yield the result of each encoder on each task with each seed.

    Encoders are scored one after the other; one that is listed twice is scored once.

    Args:
        plan: The settings of the run; its tasks and seeds are used, its encoders are not.
        encoders: Loaded encoders, and names of encoders that are loaded when it is their turn.
        callbacks: Called with the progress. If there are several encoders, also called with the
            error of one that fails; the error of the only one is raised.
    """
    context = RunContext(plan, callbacks)
    seen_encoders = SeenEncoders(NAMING_HINT)
    tasks = list(context.tasks.values())
    # The values are None: no cell has an earlier result.
    cells = dict.fromkeys((task, seed) for task in tasks for seed in plan.seeds)
    for encoder in encoders:
        label = encoder if isinstance(encoder, str) else encoder.name
        # ``expected`` are classes of errors that are reported even for the only encoder.
        with report_errors(label, callbacks, is_only_encoder=len(encoders) == 1, expected=()):
            # A loaded encoder has its parameters already.
            params = plan.params if isinstance(encoder, str) else {}
            named_encoder = resolve_encoder(encoder, plan.catalogue, params=params)
            # Raises an error for another encoder of this name that results could not distinguish.
            is_new = seen_encoders.add(named_encoder)
            if is_new:
                # A warning if the encoder needs a prompt that it was loaded without.
                warning = named_encoder.missing_prompt(plan.catalogue)
                if warning:
                    callbacks.on_notice(warning)
                embedder = context.make_embedder(named_encoder, tasks, callbacks)
                yield from score_tasks(embedder, cells, callbacks=callbacks)
