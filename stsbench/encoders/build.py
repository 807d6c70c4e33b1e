"""Make an encoder from its factory and parameters, and a variant of it if they ask for one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.core.parameters import call_with_params
from stsbench.core.provenance import record_factory
from stsbench.core.settings import find_key_problem
from stsbench.encoders.base import Encoder, FittableEncoder
from stsbench.encoders.fitted import (
    CALIBRATION,
    VARIANT_KEYS,
    PostProcessed,
    Variant,
    VariantEncoder,
)
from stsbench.encoders.metadata import can_encode, check_encoder
from stsbench.encoders.pairs import PairScorer

_BASES_OF_VARIANTS: WeakValueDictionary[str, Encoder] = WeakValueDictionary()
"""The bases of variants that are in use, by kind and parameters: variants share one base."""


def build_encoder(
    factory: Callable[..., Any],
    name: str,
    params: Mapping[str, Any],
    where: str,
    catalogue: Catalogue | None = None,
    *,
    kind: str,
) -> Encoder:
    """Make an encoder, or a variant of it if ``params`` has parameters of variants.

    A variant shares its base with other variants that are in use, if only their parameters of
    variants differ.

    Args:
        factory: A class, a function or an encoder that is made already.
        name: The name of the encoder; empty if it has its own.
        params: Its parameters, and those of a variant if the factory does not accept them itself.
        where: The beginning of messages.
        catalogue: The cards to search for a base; None if it needs none.
        kind: The name or address of the factory.

    Raises:
        CardError: A parameter is unknown, missing or of another type, or asks for a variant of an
            encoder that is fitted on texts.
        EncoderError: The factory's object is no encoder.
    """
    accepted = {} if _is_object(factory) else inspect.signature(factory).parameters
    variant_params = _select_variant_params(params, accepted)
    factory_params = {key: value for key, value in params.items() if key not in variant_params}

    def make() -> Encoder:
        candidate = _call_factory(factory, name, factory_params, where, catalogue)
        encoder = check_encoder(candidate, where)
        record_factory(encoder, factory, factory_params, name=kind)
        return encoder

    if not variant_params:
        return make()
    folders = catalogue.folders if catalogue else ()
    cache_key = f"{kind} {sorted(factory_params.items())} {folders}"
    base = _BASES_OF_VARIANTS.get(cache_key)
    if base is None:
        base = make()
    variant: Variant = call_with_params(Variant, variant_params, where=where)
    with suppress(TypeError):
        # An encoder that accepts no weak references is made anew for each variant.
        _BASES_OF_VARIANTS[cache_key] = base
    if isinstance(base, FittableEncoder | PairScorer):
        reason = "fitted on texts" if isinstance(base, FittableEncoder) else "scorers of pairs"
        raise CardError(
            f"{where}: '{min(variant_params)}' is for encoders that are not {reason}, "
            "and this one is"
        )
    # The shared base may have the name of the variant that it was first made for.
    variant_encoder_name = name if name and "name" in accepted else base.name
    if not variant.needs_texts:
        return VariantEncoder(base, variant, (), name=variant_encoder_name)
    return PostProcessed(
        base, variant, name=variant_encoder_name, fit=variant.calibration or CALIBRATION
    )


def _select_variant_params(
    params: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """Return the parameters of a variant; none that the encoder's factory accepts itself.

    Args:
        params: All parameters by name.
        accepted: The parameters in the factory's signature, by name.
    """
    kinds = [parameter.kind for parameter in accepted.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        # The factory accepts any parameter.
        return {}
    return {
        key: value for key, value in params.items() if key in VARIANT_KEYS and key not in accepted
    }


def _is_object(factory: object) -> bool:
    """Return whether a factory is itself an encoder, not a class or function that makes one."""
    return not isinstance(factory, type) and can_encode(factory)


def _call_factory(
    factory: Callable[..., Any],
    name: str,
    params: dict[str, Any],
    where: str,
    catalogue: Catalogue | None,
) -> object:
    """Return what a factory makes of checked parameters, and of name and catalogue if accepted.

    A factory that is an encoder already is returned as it is.

    Args:
        factory: A class or function that makes an encoder, or an encoder that is made already.
        name: The name of the encoder; empty if the factory is a user's and names it itself.
        params: The parameters of the user or the card, by name.
        where: The beginning of messages.
        catalogue: The cards, for a factory that loads other encoders; None for none.

    Raises:
        CardError: A parameter is not valid, or the factory accepts none.
    """
    if _is_object(factory):
        if params:
            raise CardError(
                f"{where} is made already; it takes no parameters ({', '.join(params)})"
            )
        return factory
    if inspect.isabstract(factory):
        raise CardError(
            f"{where}: {factory.__name__} is an abstract class; give one that has all its methods"
        )
    if problem := find_key_problem(params):
        raise CardError(f"{where}: {problem}")
    accepted = inspect.signature(factory).parameters
    our_arguments = {"name": name or None, "catalogue": catalogue}
    # A user's own factory (without a name) may have parameters that are called so.
    if name:
        for key in our_arguments:
            if key in params:
                raise CardError(f"{where}: '{key}' cannot be set: stsbench sets it")
    arguments = {
        key: value for key, value in our_arguments.items() if value is not None and key in accepted
    }
    return call_with_params(factory, {**arguments, **params}, where=where, other_keys=VARIANT_KEYS)
