"""The routes that tell about the server: models, health, readiness, metrics, and its own description."""

import falcon

from eventstore.catalogue import Json
from gateways.http import metrics
from gateways.http.answers import dump
from gateways.http.errors import ApiError
from gateways.http.openapi import document
from gateways.http.ports import HttpPorts, ModelOffer


class AboutRoutes:
    """Handlers; each runs on a worker's thread."""

    def __init__(self, ports: HttpPorts, numbers: metrics.Metrics) -> None:
        self._ports, self._metrics = ports, numbers
        self._started = ports.clock.now() // 1_000_000
        self._document = dump(document())

    def list_models(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """List what may be asked for as `model`."""
        resp.media = {"object": "list", "data": [self._model(offer) for offer in self._ports.models()]}

    def read_model(self, _req: falcon.Request, resp: falcon.Response, model_id: str) -> None:
        """Read one model; its id may hold slashes."""
        found = next((offer for offer in self._ports.models() if offer.id == model_id), None)
        if found is None:
            raise ApiError(
                "model_not_found", f"There is no model {model_id[:200]!r}; `GET /v1/models` lists all.", param="model"
            )
        resp.media = self._model(found)

    def health(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Tell that the process answers; asks nobody else."""
        resp.media = {"status": "ok"}

    def ready(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Tell whether requests are served: 200, or 503 with what is missing."""
        state = self._ports.ready()
        resp.status = falcon.HTTP_200 if state.ok else falcon.HTTP_503
        resp.media = {"ready": state.ok, "parts": dict(state.parts)}

    def metrics(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Give all numbers to Prometheus."""
        resp.content_type, resp.data = metrics.CONTENT_TYPE, self._metrics.text()

    def openapi(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Give this API as an OpenAPI document."""
        resp.content_type, resp.data = falcon.MEDIA_JSON, self._document

    def _model(self, offer: ModelOffer) -> Json:
        return {"id": offer.id, "object": "model", "created": self._started, "owned_by": offer.owned_by}
