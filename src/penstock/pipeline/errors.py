"""What a pipeline's user is told."""

from penstock.model.errors import ErrorKind, PenstockError


class PipelineError(PenstockError):
    """A pipeline cannot be planned or run, in one sentence that names the option or the place."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.BAD_PARAMETER) -> None:
        super().__init__(kind, message)

    def __reduce__(self) -> tuple[type["PipelineError"], tuple[str, ErrorKind]]:  # type: ignore[override]
        return type(self), (self.message, self.kind)


class DataLoss(PipelineError):
    """Messages that were to be read are not there: retention took them, or the topic was made anew."""

    def __init__(self, message: str, kind: ErrorKind = ErrorKind.MESSAGE_NOT_FOUND) -> None:
        super().__init__(message, kind)
