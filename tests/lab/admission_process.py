"""The controller's webhooks, certificates and default Tiers in one process, for tests in the lab.

Words: kubeconfig, port, directory of certificate files, `self-signed` or `provided`, gates that are on besides.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from antrea.controller.certificates import Provided, SelfSigned
from antrea.controller.tiers import create_default_tiers
from antrea.controller.webhooks import Webhooks
from antrea.outside import klog
from antrea.outside.ca_publisher import CaPublisher
from antrea.outside.kube import Kube
from antrea.outside.serving import server_tls
from antrea.outside.serving_certificate import ServingCertificate


async def serve(kube: Kube, port: int, directory: Path, source: str, gates: list[str]) -> None:
    publisher = CaPublisher(kube, "kube-system")
    webhooks = Webhooks(
        kube,
        dict.fromkeys(gates, True),
        namespace="kube-system",
        service_account="antrea-controller",
    )
    tls = server_tls(None)
    async with asyncio.TaskGroup() as group:
        group.create_task(publisher.run())
        if source == "self-signed":
            file = directory / "antrea-controller.pem"
            group.create_task(SelfSigned(kube, publisher, "kube-system", file).run())
            serving = ServingCertificate(tls, file)
        else:
            group.create_task(Provided(publisher, directory).run())
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
        group.create_task(create_default_tiers(kube))


async def main(kubeconfig: str, port: str, directory: str, source: str, *gates: str) -> None:
    async with Kube.from_kubeconfig(kubeconfig) as kube:
        await serve(kube, int(port), Path(directory), source, list(gates))


if __name__ == "__main__":
    klog.start(klog.Options(), "admission")
    asyncio.run(main(*sys.argv[1:]))
