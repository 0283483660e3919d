"""The gRPC door: the standard health service and reflection, so that the port is really served.

Services of our own come with the control plane; the Kafka data path never passes here.
Invariant: the health service says what `/ready` says.
"""

import errno
import os

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

STOP_SECONDS_MAX = 1.0
# Without this Linux lets two processes share the port, and each would get half of the calls.
_OPTIONS = [("grpc.so_reuseport", 0)]
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class GrpcServer:
    def __init__(self) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, host: str, port: int) -> int:
        """Listen and report ready; return the port (chosen by the system, if it was 0).

        Raises OSError if the address cannot be had.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from error
        await self._server.start()
        await self.set_ready(True)
        return int(bound)

    async def set_ready(self, ready: bool) -> None:
        """What health checks answer from now on, for the server and its services."""
        status = _SERVING if ready else _NOT_SERVING
        for service in ("", health.SERVICE_NAME):
            await self._health.set(service, status)

    async def stop(self) -> None:
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_SECONDS_MAX)
