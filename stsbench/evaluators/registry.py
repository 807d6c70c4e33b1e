"""The registry of evaluators, and how an evaluator is made for a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, get_type_hints

from stsbench.core.cards import TaskCard
from stsbench.core.errors import CardError, ProtocolError, look_up, suggest
from stsbench.core.parameters import call_with_params, fit
from stsbench.core.registry import Registry
from stsbench.evaluators.base import Evaluator


def _is_evaluator(value: object) -> bool:
    """Return whether a value may be an evaluator's class.

    It must be callable and have ``PROTOCOLS``, a mapping from names to dataclasses, not empty.
    """
    protocols = getattr(value, "PROTOCOLS", None)
    has_protocols = (
        isinstance(protocols, Mapping)
        and len(protocols) > 0
        and all(map(is_dataclass, protocols.values()))
    )
    return has_protocols and callable(value)


EVALUATORS = Registry(
    "evaluator",
    {
        "sts": "stsbench.evaluators.sts:StsEvaluator",
        "contrast": "stsbench.evaluators.contrast:ContrastEvaluator",
        "probe": "stsbench.evaluators.probe.evaluator:ProbeEvaluator",
        "relatedness": "stsbench.evaluators.relatedness:RelatednessEvaluator",
        "retrieval": "stsbench.evaluators.retrieval:RetrievalEvaluator",
    },
    group="evaluators",
    accepts=_is_evaluator,
    expected="a class of evaluators, whose PROTOCOLS are dataclasses by name",
)


def replace_fields(protocol: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a dataclass
    """Return a copy of a protocol, the settings of scoring, with some fields replaced.

    Args:
        protocol: A dataclass with a field ``name``, which cannot be replaced.
        values: The new values by field name; each is converted to the type of its field.

    Raises:
        ProtocolError: The protocol lacks a field (the message suggests names that are spelled like
            it), or a value is not valid for its field.
    """
    # The type of each field, by the field's name.
    hints = get_type_hints(type(protocol), include_extras=True)
    field_names = [field.name for field in fields(protocol) if field.name != "name"]
    new_values = {}
    for name, value in values.items():
        if name not in field_names:
            raise ProtocolError(
                f"protocol '{protocol.name}' has no field '{name}'{suggest(name, field_names)}"
            )
        location = f"protocol '{protocol.name}': {name}"
        try:
            # This converts the value to the field's type, or raises CardError.
            new_values[name] = fit(value, hints[name], name, where=location)
        except CardError as error:
            raise ProtocolError(str(error)) from error
    return replace(protocol, **new_values)


def make_task_evaluator(task: str, card: TaskCard, protocol: Mapping[str, Any]) -> Evaluator:
    """Return the evaluator of a task, with the protocol that a Result (a stored score) records.

    Args:
        task: The task's name.
        card: The task's card: the file that describes it and names its evaluator.
        protocol: The protocol's fields by name, all of them, with its ``name``.

    Raises:
        StsbenchError: The evaluator or the protocol does not exist, or a field of the protocol is
            missing, unknown or not valid.
    """
    # EVALUATORS knows the class of each evaluator by its name in cards, such as ``sts``.
    evaluator_class = EVALUATORS.load(card.evaluator)
    name = str(protocol.get("name", ""))
    # The protocol with the default values of its fields; look_up raises an error for another name.
    registered = look_up("protocol", name, evaluator_class.PROTOCOLS)
    missing_fields = [field.name for field in fields(registered) if field.name not in protocol]
    if missing_fields:
        raise ProtocolError(f"protocol '{name}': '{missing_fields[0]}' is missing")
    values = {key: value for key, value in protocol.items() if key != "name"}
    # The class also gets the options of the card.
    return make_evaluator(
        evaluator_class, protocol=replace_fields(registered, values), card=card, task=task
    )


def make_evaluator(
    factory: Callable[..., Evaluator], protocol: object, card: TaskCard, task: str
) -> Evaluator:
    """Make an evaluator with the options of a task's card.

    Args:
        factory: The evaluator's class.
        protocol: The settings of scoring, a dataclass of the kind that the class accepts.
        card: The task's card, whose section ``[options]`` has further arguments of the class.
        task: The task's name, for messages.

    Raises:
        CardError: The evaluator has no such option.
    """
    where = f"task {task}: [options]"
    if "protocol" in card.options:
        raise CardError(f"{where}: key 'protocol' is no option: a run chooses the protocol")
    params = {"protocol": protocol, **card.options}
    # This checks the arguments against the signature of the class, and calls it with them.
    evaluator: Evaluator = call_with_params(factory, params, where=where)
    return evaluator


def all_protocols() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the fields of every protocol, by its name, then by the evaluator that has it."""
    fields_by_protocol: dict[str, dict[str, dict[str, Any]]] = {}
    for evaluator in EVALUATORS.names():
        for name, protocol in EVALUATORS.load(evaluator).PROTOCOLS.items():
            fields_by_protocol.setdefault(name, {})[evaluator] = asdict(protocol)
    return fields_by_protocol
