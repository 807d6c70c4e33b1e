"""Evaluators: splits and embeddings in, scores out. They load, write and print nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, get_type_hints

from stsbench.core.cards import TaskCard
from stsbench.core.errors import CardError, ProtocolError, look_up, suggest
from stsbench.core.parameters import call_with_params, fit
from stsbench.core.registry import Registry
from stsbench.evaluators.base import Evaluator


def _is_evaluator(found: object) -> bool:
    protocols = getattr(found, "PROTOCOLS", None)
    named = (
        isinstance(protocols, Mapping)
        and len(protocols) > 0
        and all(map(is_dataclass, protocols.values()))
    )
    return named and callable(found)


EVALUATORS = Registry(
    "evaluator",
    {
        "sts": "stsbench.evaluators.sts:StsEvaluator",
        "probe": "stsbench.evaluators.probe.evaluator:ProbeEvaluator",
        "relatedness": "stsbench.evaluators.relatedness:RelatednessEvaluator",
        "retrieval": "stsbench.evaluators.retrieval:RetrievalEvaluator",
    },
    group="evaluators",
    accepts=_is_evaluator,
    expected="a class of evaluators, whose PROTOCOLS are dataclasses by name",
)


def replace_fields(protocol: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - protocols are dataclasses
    """Return the protocol with some fields replaced; raises ProtocolError for a field that it lacks or cannot take."""
    hints = get_type_hints(type(protocol), include_extras=True)
    known = [field.name for field in fields(protocol) if field.name != "name"]
    fitted = {}
    for key, value in values.items():
        if key not in known:
            raise ProtocolError(
                f"protocol '{protocol.name}' has no field '{key}'{suggest(key, known)}"
            )
        try:
            fitted[key] = fit(value, hints[key], key, where=f"protocol '{protocol.name}': {key}")
        except CardError as error:
            raise ProtocolError(str(error)) from error
    return replace(protocol, **fitted)


def make_task_evaluator(task: str, card: TaskCard, protocol: Mapping[str, Any]) -> Evaluator:
    """The evaluator that a task's card names, made with the protocol that a Result of it records: its name and all its fields.

    Raises StsbenchError: an evaluator or protocol that is not here, or a field that is missing, unknown or senseless.
    """
    factory, name = EVALUATORS.load(card.evaluator), str(protocol["name"])
    usual = look_up("protocol", name, factory.PROTOCOLS)
    if missing := [field.name for field in fields(usual) if field.name not in protocol]:
        raise ProtocolError(f"protocol '{name}': '{missing[0]}' is missing")
    return make_evaluator(
        factory,
        replace_fields(usual, {k: value for k, value in protocol.items() if k != "name"}),
        card,
        task,
    )


def make_evaluator(
    factory: Callable[..., Evaluator], protocol: object, card: TaskCard, task: str
) -> Evaluator:
    """An evaluator with the options of a task's card; raises CardError where it has no such option."""
    params = {"protocol": protocol, **card.options}
    made: Evaluator = call_with_params(factory, params, where=f"task {task}: [options]")
    return made


def all_protocols() -> dict[str, dict[str, dict[str, Any]]]:
    """The fields of every protocol: by its name, then by the evaluator that knows it."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for evaluator in EVALUATORS.names():
        for name, protocol in EVALUATORS.load(evaluator).PROTOCOLS.items():
            found.setdefault(name, {})[evaluator] = asdict(protocol)
    return found
