"""The aggregation port: open once there is a certificate and a request-header CA, and open anew when either changes.

Connections that are there stay; only new ones meet the new certificate and the new trust.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import structlog
from aiohttp import web

from clockhand.api.runs import certificates
from clockhand.kube import aggregation

_SHUTDOWN_SECONDS = 5.0
log = structlog.get_logger(__name__)


class Listener:
    """One application behind TLS."""

    def __init__(self, app: web.Application, *, port: int, host: str | None = None) -> None:
        # a watch whose client is gone must not wait for its next event to find out
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        self._host = host
        self._port = port
        self._site: web.TCPSite | None = None
        self._serving: certificates.Serving | None = None
        self._trust: aggregation.FrontProxy | None = None

    @property
    def port(self) -> int:
        """The port in use, also where a free one was asked for."""
        return self._port

    @property
    def ready(self) -> bool:
        return self._site is not None

    async def present(self, serving: certificates.Serving) -> None:
        """Serve with this certificate from now on."""
        if serving != self._serving:
            self._serving = serving
            await self._reopen()

    async def believe(self, trust: aggregation.FrontProxy) -> None:
        """Trust certificates of this request-header CA from now on."""
        is_new = self._trust is None or trust.ca != self._trust.ca
        self._trust = trust
        if is_new:
            await self._reopen()

    async def close(self) -> None:
        """Lets requests end, for a few seconds."""
        self._site = None
        await self._runner.cleanup()

    async def _reopen(self) -> None:
        if self._serving is None or self._trust is None or not self._trust.ca:
            return
        context = tls_context(self._serving, self._trust.ca)
        if self._runner.server is None:
            await self._runner.setup()
        if self._site is not None:
            await self._site.stop()
        self._site = web.TCPSite(self._runner, host=self._host, port=self._port, ssl_context=context)
        await self._site.start()
        if self._port == 0:
            self._port = self._runner.addresses[0][1]
        log.info("runs_served", port=self._port)


def tls_context(serving: certificates.Serving, client_ca: str) -> ssl.SSLContext:
    """No other CA than the request-header CA is trusted here, so a client certificate that passes is the front proxy's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(cadata=client_ca)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(serving.certificate)
        key.touch(mode=0o600)
        key.write_bytes(serving.key)
        context.load_cert_chain(certificate, key)
    return context
