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
    DEFAULT_CALIBRATION_TEXTS,
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
    message_prefix: str,
    catalogue: Catalogue | None = None,
    *,
    kind: str,
) -> Encoder:
    """Make an encoder, or a variant of it, with fewer dimensions or numbers of few bits.

    Variants of the same encoder, their base, share it while they are in use.

    Args:
        factory: A class or function that makes the encoder, or an encoder that is made already.
        name: The name of the encoder; empty if it has its own.
        params: Parameters of the factory and of a variant, such as ``dimensions``, by name.
        message_prefix: The beginning of error messages.
        catalogue: The cards, for a factory that loads another encoder; None if it loads none.
        kind: The name or address of the factory, which is recorded with the encoder.

    Raises:
        CardError: A parameter is not valid, or there can be no variant of this encoder.
        EncoderError: The factory's object is no encoder.
    """
    # The parameters in the factory's signature, by name.
    accepted = {} if _is_object(factory) else inspect.signature(factory).parameters
    variant_params = _select_variant_params(params, accepted)
    factory_params = {key: value for key, value in params.items() if key not in variant_params}

    def make_base() -> Encoder:
        """Make and check the encoder without the parameters of variants; note its factory in it."""
        candidate = _call_factory(factory, name, factory_params, message_prefix, catalogue)
        encoder = check_encoder(candidate, message_prefix)
        record_factory(encoder, factory, factory_params, name=kind)
        return encoder

    if not variant_params:
        return make_base()
    folders = catalogue.folders if catalogue else ()
    cache_key = f"{kind} {sorted(factory_params.items())} {folders}"
    base = _BASES_OF_VARIANTS.get(cache_key)
    if base is None:
        base = make_base()
    variant: Variant = call_with_params(Variant, variant_params, where=message_prefix)
    with suppress(TypeError):  # an encoder that accepts no weak references is not shared
        _BASES_OF_VARIANTS[cache_key] = base
    if isinstance(base, FittableEncoder | PairScorer):
        reason = "fitted on texts" if isinstance(base, FittableEncoder) else "scorers of pairs"
        raise CardError(
            f"{message_prefix}: '{min(variant_params)}' is for encoders that are not {reason}, "
            "and this one is"
        )
    # Not always the name of the base, which may be that of the variant it was first made for.
    variant_encoder_name = name if name and "name" in accepted else base.name
    if not variant.needs_texts:  # integers need them, for the range of each dimension
        return VariantEncoder(base, variant, (), name=variant_encoder_name)
    # The name of the texts on which the ranges are fitted, such as `stsb.train`.
    calibration = variant.calibration or DEFAULT_CALIBRATION_TEXTS
    return PostProcessed(base, variant, name=variant_encoder_name, fit=calibration)


def _select_variant_params(
    params: Mapping[str, Any], accepted: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """Return those parameters that ask for a variant: other dimensions or another type of numbers.

    Their names are ``VARIANT_KEYS``: ``dimensions``, ``embeddings`` (the type of the numbers) and
    ``calibration``. One that the encoder's factory accepts itself is the factory's.

    Args:
        params: All parameters, by name.
        accepted: The parameters in the factory's signature, by name.
    """
    kinds = [parameter.kind for parameter in accepted.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        # The factory accepts any parameter (``**params``), so all are the factory's.
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
    message_prefix: str,
    catalogue: Catalogue | None,
) -> object:
    """Check parameters, and return the object that a factory makes of them.

    The name and the catalogue are passed too, if the factory accepts them. A factory that is an
    encoder already is returned as it is.

    Args:
        factory: A class or function that makes an encoder, or an encoder that is made already.
        name: The name of the encoder; empty if the factory is a user's and names it itself.
        params: The parameters of the user or the card, by name.
        message_prefix: The beginning of error messages.
        catalogue: The cards, for a factory that loads other encoders; None for none.

    Raises:
        CardError: A parameter is not valid, or the factory accepts none.
    """
    if _is_object(factory):
        if params:
            raise CardError(
                f"{message_prefix} is made already; it takes no parameters ({', '.join(params)})"
            )
        return factory
    if inspect.isabstract(factory):
        raise CardError(
            f"{message_prefix}: {factory.__name__} is an abstract class; "
            "give one that has all its methods"
        )
    # Not empty if a parameter is a secret key, which must be in the environment instead.
    problem = find_key_problem(params)
    if problem:
        raise CardError(f"{message_prefix}: {problem}")
    accepted = inspect.signature(factory).parameters
    our_arguments = {"name": name or None, "catalogue": catalogue}
    # A user's own factory, for which no name is passed, may have parameters of these names.
    if name:
        for key in our_arguments:
            if key in params:
                raise CardError(f"{message_prefix}: '{key}' cannot be set: stsbench sets it")
    arguments = {
        key: value for key, value in our_arguments.items() if value is not None and key in accepted
    }
    # Raises if a parameter is missing, unknown or of another type than in the signature. The
    # message may suggest one of the `other_keys` in place of an unknown parameter.
    return call_with_params(
        factory, {**arguments, **params}, where=message_prefix, other_keys=VARIANT_KEYS
    )
