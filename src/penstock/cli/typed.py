"""Click's types of parameters, which can be subscripted at runtime since its version 8.4 alone."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import Choice as Choice
    from click import ParamType as ParamType
else:

    class ParamType(click.ParamType):
        def __class_getitem__(cls, converted: Any) -> type:
            return cls

    class Choice(click.Choice):
        def __class_getitem__(cls, converted: Any) -> type:
            return cls
