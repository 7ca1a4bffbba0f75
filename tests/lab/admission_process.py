"""The controller's webhooks, certificates and default Tiers in one process, for tests in the lab.

Words: kubeconfig, port, directory of certificate files, `self-signed` or `provided`, gates that are on besides.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from antrea.controller.certificates import SELF_SIGNED
from antrea.controller.upkeep import upkeep
from antrea.controller.webhooks import Webhooks
from antrea.outside import klog
from antrea.outside.kube import Kube
from antrea.outside.serving import server_tls
from antrea.outside.serving_certificate import ServingCertificate


async def serve(kube: Kube, port: int, directory: Path, source: str, gates: list[str]) -> None:
    webhooks = Webhooks(
        kube,
        dict.fromkeys(gates, True),
        namespace="kube-system",
        service_account="antrea-controller",
    )
    tls = server_tls(None)
    async with asyncio.TaskGroup() as group:
        own = source == "self-signed"
        group.create_task(upkeep(kube, "kube-system", self_signed=own, tiers=True, directory=directory))
        if own:
            serving = ServingCertificate(tls, directory / SELF_SIGNED.name)
        else:
            serving = ServingCertificate(tls, directory / "tls.crt", directory / "tls.key")
        await serving.ready(60)
        group.create_task(serving.run())
        group.create_task(webhooks.run())
        app = web.Application()
        for path, handler in webhooks.routes.items():
            app.router.add_post(path, handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", port, ssl_context=tls).start()


async def main(kubeconfig: str, port: str, directory: str, source: str, *gates: str) -> None:
    async with Kube.from_kubeconfig(kubeconfig) as kube:
        await serve(kube, int(port), Path(directory), source, list(gates))


if __name__ == "__main__":
    klog.start(klog.Options(), "admission")
    asyncio.run(main(*sys.argv[1:]))
