"""`GET /v1/models`: the models that live inference services offer."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from frameledger_services.gateway import answers
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai.request_values import ANY_MODEL
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import serving
from frameledger_services.store.serving import LiveWorker


@dataclass(frozen=True, slots=True)
class Model:
    """A model in OpenAI's format."""

    id: str
    created: int
    """The Unix time in seconds since which it is offered."""

    owned_by: str
    """The inference service."""

    object: str = "model"


async def served(dependencies: Dependencies) -> list[LiveWorker]:
    """Returns the live inference workers."""
    return [one for one in await dependencies.database.read(serving.workers) if one.kind == "inference"]


async def check(dependencies: Dependencies, model: str | None) -> None:
    """Raise `no-such-model` if workers are alive and none of them answers for this model."""
    if model is None:
        return
    workers = await served(dependencies)
    if workers and not any(one.serves_all or model in one.serves for one in workers):
        raise _no_such(model)


async def every(dependencies: Dependencies) -> list[Model]:
    """Returns the models. The first is `ANY_MODEL`, which stands for all of them."""
    models: dict[str, Model] = {}
    for worker in await served(dependencies):
        created = int(worker.started_at.timestamp())
        models.setdefault(ANY_MODEL, Model(ANY_MODEL, created, "frameledger"))
        for name in worker.serves:
            models.setdefault(name, Model(name, created, worker.service))
    return list(models.values())


async def list_models(dependencies: Dependencies, _: Request) -> Response:
    """Answer with all models."""
    return answers.json_answer({"object": "list", "data": await every(dependencies)})


async def get_model(dependencies: Dependencies, request: Request) -> Response:
    """Answer with one model. Raises `no-such-model`."""
    name = unquote(request.path_params["model"])
    for model in await every(dependencies):
        if model.id == name:
            return answers.json_answer(model)
    raise _no_such(name)


def _no_such(model: str) -> ProblemError:
    return ProblemError(
        "no-such-model",
        f"No live inference service offers the model {model[:255]!r}; `{ANY_MODEL}` selects any of the offered ones.",
        param="model",
    )
