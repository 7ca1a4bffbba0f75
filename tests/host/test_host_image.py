"""Images in a real containerd: seeded from one copy, run from there, and our own image without the host's /usr."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antrea import IMAGE, VERSION
from image_build import cache, oci
from image_build.oci import Image
from image_build.rootfs import Tree
from lab import e2e_images, image_recipe, images

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.images import SeedRoot

OURS = f"{IMAGE}:v{VERSION}"
NAME = "example.org/lab/tools:1"


def tools(text: bytes) -> Image:
    """busybox, and on top of it a layer with `text`."""
    lower, upper = Tree(), Tree()
    lower.file("bin/busybox", Path("/bin/busybox"), 0o755)
    lower.folder("etc")
    upper.file("etc/text", text)
    layers = tuple(oci.layer(tree.key(), tree.write) for tree in (lower, upper))
    return Image((NAME,), layers, ("/bin/busybox",))


def inodes(root: SeedRoot) -> dict[int, str]:
    return {p.stat().st_ino: p.name for p in root.path.rglob("*") if p.is_file() and p.suffix != ".db"}


def contents(root: SeedRoot) -> dict[str, str]:
    return {str(p): cache.digest(p) for p in root.path.rglob("*") if p.is_file()}


def run_on(root: SeedRoot, name: str, *command: str) -> str:
    """Output of a command in a container of a containerd that was seeded from there."""
    with tempfile.TemporaryDirectory(prefix="antrea-t-node-", dir=root.path.parents[2]) as node:
        images.seed(root, Path(node))
        with images.containerd(Path(node)) as ctr:
            words = [*ctr, "run", "--rm", name, f"t-{os.getpid()}", *command]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTREA_LAB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_a_seeded_containerd_runs_the_image_and_leaves_the_seed_as_it_was() -> None:
    root = images.prepare(lambda _: None, [tools(b"one"), image_recipe.pause()])
    assert root.references == (NAME, images.PAUSE)
    script = "/bin/busybox cat /etc/text; echo two > /etc/text; /bin/busybox cat /etc/text"
    before = contents(root)
    for _ in range(2):
        assert run_on(root, NAME, "/bin/busybox", "sh", "-c", script) == "onetwo\n"
    assert contents(root) == before


@pytest.mark.usefixtures("own_cache")
def test_a_changed_upper_layer_unpacks_that_layer_only() -> None:
    first = images.prepare(lambda _: None, [tools(b"one")])
    second = images.prepare(lambda _: None, [tools(b"two")])
    shared = {name for inode, name in inodes(second).items() if inode in inodes(first)}
    assert "busybox" in shared
    assert "text" not in shared
    assert run_on(first, NAME, "/bin/busybox", "cat", "/etc/text") == "one"
    assert run_on(second, NAME, "/bin/busybox", "cat", "/etc/text") == "two"


@pytest.mark.usefixtures("own_cache")
def test_what_is_no_longer_wanted_is_not_in_the_next_root() -> None:
    images.prepare(lambda _: None, [tools(b"one"), image_recipe.pause()])
    root = images.prepare(lambda _: None, [tools(b"one")])
    assert "pause" not in inodes(root).values()


@pytest.mark.usefixtures("own_cache")
def test_preparing_again_asks_containerd_nothing() -> None:
    lines: list[str] = []
    roots = [images.prepare(lines.append, [tools(b"one")]) for _ in range(2)]
    assert roots[0] == roots[1]
    assert [line.split(":")[0] for line in lines] == ["unpack 1 images ...", "unpack 1 images"]


@pytest.mark.usefixtures("own_cache")
def test_the_test_image_has_working_network_tools() -> None:
    program = Path("/bin/busybox")
    root = images.prepare(lambda _: None, [e2e_images.agnhost(program, program)])
    script = (
        "curl -V; dig -v 2>&1; ping -V; ip -V; ss -V; nc -h 2>&1 || true; nslookup -version 2>&1; id -un; "
        "iperf3 -v; tcpdump --version 2>&1; arping --help 2>&1 || true; getent passwd nobody; timeout --preserve-status 5 hostname; "
        "mkdir /run/netns; [ -x /agnhost ]; [ -x /coredns ]; [ -s /localhost.crt ]; [ -s /localhost.key ]; "
        "wget -T 1 -O - http://nowhere.invalid/ 2>&1 || echo wget exit $?"
    )
    said = run_on(root, images.AGNHOST, "/bin/sh", "-ec", script)
    for word in (
        "curl 7",
        "DiG 9",
        "ping from",
        "ip utility",
        "ss utility",
        "OpenBSD netcat",
        "nslookup 9",
        "root",
        "iperf 3",
        "tcpdump version",
        "ARPing 2",
        "nobody:x:65534",
        # it asked for the name, and ended by itself
        "unable to resolve host address",
        "wget exit 4",
    ):
        assert word in said


class Node:
    """A containerd that was seeded with our image, and scripts run in containers of it."""

    def __init__(self, ctr: list[str]) -> None:
        self.ctr = ctr
        self.count = 0

    def output(self, script: str) -> str:
        """What a script prints; it and each of its commands succeed."""
        done = self.run(f"set -e; {script}")
        assert done.returncode == 0, done
        return done.stdout

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """A script of the image's own sh, with the capabilities that the manifest gives antrea-ovs.

        It prints into files: `ctr` loses the end of what a container prints now and then.
        """
        self.count += 1
        capabilities = [
            word
            for name in ("NET_ADMIN", "SYS_ADMIN", "SYS_NICE", "IPC_LOCK")
            for word in ("--cap-add", f"CAP_{name}")
        ]
        with tempfile.TemporaryDirectory(prefix="antrea-t-output-") as folder:
            mount = ["--mount", f"type=bind,src={folder},dst=/output,options=rbind:rw"]
            container = [oci.reference(OURS), f"t-{os.getpid()}-{self.count}"]
            command = ["sh", "-c", 'exec sh -c "$0" >/output/stdout 2>/output/stderr', script]
            words = [*self.ctr, "run", "--rm", *capabilities, *mount, *container, *command]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            printed = {path.name: path.read_text() for path in Path(folder).iterdir()}
            assert len(printed) == 2, done
            return subprocess.CompletedProcess(words, done.returncode, printed["stdout"], printed["stderr"])


@pytest.fixture(scope="module")
def product() -> Image:
    return image_recipe.product(lambda _: None)


@pytest.fixture(scope="module")
def node(product: Image) -> Iterator[Node]:
    root = images.prepare(lambda _: None, [product])
    with tempfile.TemporaryDirectory(prefix="antrea-t-node-") as folder:
        images.seed(root, Path(folder))
        with images.containerd(Path(folder)) as ctr:
            yield Node(ctr)


@pytest.mark.timeout(900)
def test_our_image_is_small_and_the_same_bytes_when_built_again(product: Image) -> None:
    assert image_recipe.product(lambda _: None) == product
    assert product.names == (OURS,)
    assert sum(layer.size for layer in product.layers) < 200e6


@pytest.mark.timeout(900)
def test_our_image_has_every_program_that_its_containers_start(node: Node) -> None:
    script = """set -e
    for command in antrea-agent antrea-controller antctl; do $command --help >/dev/null; done
    for command in nft conntrack modprobe ovs-vswitchd ovsdb-server ovs-ofctl ovs-vsctl ovs-appctl ovsdb-tool; do
        $command --version >/dev/null
    done
    ip -V >/dev/null
    ls /usr/lib/cni
    python3 -c 'import importlib.metadata as m; print(m.version("antrea"))'
    """
    done = node.run(script)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.split() == ["antrea", "bandwidth", "host-local", "loopback", "portmap", "0.1.0"]


@pytest.mark.timeout(900)
def test_our_image_has_an_ovs_that_keeps_its_tunnel_and_an_nft_that_others_on_a_node_can_read(
    node: Node,
) -> None:
    """Decisions 0005 and 0001."""
    said = node.run("ovs-vswitchd --version; nft --version").stdout
    ovs, nft = (tuple(map(int, found.split("."))) for found in re.findall(r" v?(\d+\.\d+\.\d+)", said))
    assert ovs >= (3, 1, 1)
    assert nft <= (1, 0, 6)


@pytest.mark.timeout(900)
def test_our_image_has_no_program_that_gives_rights_to_its_caller(product: Image) -> None:
    found, names = [], 0
    for layer in product.layers:
        with tarfile.open(layer.path) as tar:
            for entry in tar:
                names += 1
                capabilities = [key for key in entry.pax_headers if "security.capability" in key]
                if (entry.isfile() and entry.mode & 0o6000) or capabilities:
                    found.append((entry.name, oct(entry.mode), capabilities))
    assert found == []
    assert names > 1000


@pytest.mark.timeout(900)
def test_our_image_says_which_packages_are_in_it(node: Node) -> None:
    document = json.loads(node.output("cat /usr/share/antrea/sbom.cdx.json"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    said = {(one["purl"].partition("/")[0], one["name"], one["version"]) for one in document["components"]}
    debian = node.output("dpkg-query -W -f '${Package} ${Version}\\n'").split("\n")[:-1]
    python = node.output(
        "python3 -c 'import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]'"
    ).split("\n")[:-1]
    there = {("pkg:deb", *line.split()) for line in debian}
    there |= {
        ("pkg:pypi", name.lower().replace("_", "-"), version) for name, version in map(str.split, python)
    }
    assert said == there
    assert {"openvswitch-switch", "aiohttp", "antrea"} <= {name for _, name, _ in said}
    purls = [one["purl"] for one in document["components"]]
    assert len({*purls}) == len(purls)


@pytest.mark.timeout(900)
def test_our_image_brings_every_dependency_that_is_locked(node: Node) -> None:
    done = node.run(
        "python3 -c 'import aiohttp, click, cryptography.x509, dns.asyncquery, msgspec, prometheus_client, yaml'"
    )
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.timeout(900)
def test_our_image_runs_compiled_modules_and_byte_code_of_its_own_python(node: Node) -> None:
    """Whichever Python built it; byte code of another one would be written anew in memory at each start."""
    script = """
    python3 -c 'import sys, antrea.engine.core as core; print(sys.version_info[:2], core.IMPLEMENTATION)'
    python3 -v -c 'import aiohttp, antrea.agent.main' 2>&1 | grep -c 'code object from .*[.]py$'
    """
    assert node.run(script).stdout.splitlines() == ["(3, 13) compiled", "0"]


WAIT = """wait_for() { n=0; while ! eval "$1"; do n=$((n + 1)); [ $n -lt 200 ] || exit 9; sleep 0.05; done; }
"""


@pytest.mark.timeout(900)
def test_start_ovs_waits_for_flows_starts_again_what_died_and_ends_on_term(node: Node) -> None:
    script = f"""{WAIT}
    start_ovs --log_file_max_size=100 --log_file_max_num=4 >/tmp/said & main=$!
    wait_for 'container_liveness_probe ovs 2>/dev/null'
    ovs-vsctl get Open_vSwitch . other_config
    ovs-vsctl add-br t -- set bridge t datapath_type=netdev
    ovs-vsctl remove Open_vSwitch . other_config flow-restore-wait
    id=$(ovs-vsctl get Open_vSwitch . external_ids:system-id)
    old=$(cat /var/run/openvswitch/ovs-vswitchd.pid)
    kill -9 $old
    wait_for '[ "$(cat /var/run/openvswitch/ovs-vswitchd.pid)" != '$old' ] && container_liveness_probe ovs'
    ovs-vsctl get Open_vSwitch . other_config:flow-restore-wait
    kill -9 $(cat /var/run/openvswitch/ovsdb-server.pid)
    wait_for 'ovs-vsctl --timeout=1 list-br 2>/dev/null'
    [ "$id" = "$(ovs-vsctl get Open_vSwitch . external_ids:system-id)" ] || echo another system-id
    touch /var/run/openvswitch/antrea-agent.ending # as an agent does that ends at the same time
    kill $main
    sleep 0.6 # longer than it waits for such an agent to say so
    container_liveness_probe ovs && echo waits for the agent
    rm /var/run/openvswitch/antrea-agent.ending
    wait $main
    echo ended with $?
    ls /var/run/openvswitch
    container_liveness_probe ovs
    """
    done = node.run(script)
    assert done.stdout.splitlines() == [
        '{flow-restore-wait="true", hw-offload="false", max-revalidator="200"}',
        '"true"',
        "t",
        "waits for the agent",
        "ended with 0",
        "conf.db",
    ]
    assert done.stderr.splitlines()[-1] == "ovsdb-server does not run"
    assert done.returncode == 1


@pytest.mark.timeout(900)
def test_start_ovs_begins_anew_where_the_database_is_damaged_and_keeps_that_aside(node: Node) -> None:
    script = f"""{WAIT}
    mkdir -p /var/run/openvswitch
    echo 'OVSDB JSON 12 nonsense' >/var/run/openvswitch/conf.db
    start_ovs >/tmp/said & main=$!
    wait_for 'container_liveness_probe ovs 2>/dev/null'
    ovs-vsctl get Open_vSwitch . next_cfg
    kill $main
    wait $main
    cat /var/run/openvswitch/conf.db.damaged
    grep -o 'is damaged and kept.*' /tmp/said
    """
    done = node.run(script)
    assert done.stdout.splitlines() == [
        "0",
        "OVSDB JSON 12 nonsense",
        "is damaged and kept as /var/run/openvswitch/conf.db.damaged: Pods of this Node need to be made anew",
    ]


@pytest.mark.timeout(900)
def test_start_ovs_refuses_what_it_does_not_know(node: Node) -> None:
    done = node.run("start_ovs --log_file_max_sise=1")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "start_ovs: unknown argument --log_file_max_sise=1",
    )


HOST = """mkdir -p /host/opt/cni/bin /host/etc/cni/net.d /var/run/antrea /etc/antrea
chmod 755 /var/run/antrea; echo '{}' > /etc/antrea/antrea-cni.conflist
"""


@pytest.mark.timeout(900)
def test_install_cni_puts_plugins_and_configuration_and_removes_the_old_one(node: Node) -> None:
    script = f"""{HOST}
    touch /host/etc/cni/net.d/10-antrea.conf; ln -s busy /host/opt/cni/bin/antrea
    SKIP_CNI_BINARIES='portmap, bandwidth' CONFIG_FILE_MODE=600 SKIP_LOADING_KERNEL_MODULES=1 install_cni
    for folder in /host/opt/cni/bin /host/etc/cni/net.d; do ls -A $folder; done
    stat -c '%n %a' /host/opt/cni/bin/* /host/etc/cni/net.d/* /var/run/antrea
    CNI_COMMAND=VERSION /host/opt/cni/bin/antrea </dev/null | grep -c cniVersion
    """
    done = node.run(script)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == [
        "installed /host/opt/cni/bin/antrea",
        "installed /host/opt/cni/bin/loopback",
        "skipped portmap",
        "skipped bandwidth",
        "installed /host/etc/cni/net.d/10-antrea.conflist",
        "antrea",
        "loopback",
        "10-antrea.conflist",
        "/host/opt/cni/bin/antrea 755",
        "/host/opt/cni/bin/loopback 755",
        "/host/etc/cni/net.d/10-antrea.conflist 600",
        "/var/run/antrea 750",
        "1",
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("datapath", ["system", "netdev"])
def test_install_cni_needs_the_kernel_module_for_the_kernel_datapath_only(node: Node, datapath: str) -> None:
    done = node.run(
        f"{HOST} echo 'ovsDatapathType: \"{datapath}\" # of us' > /etc/antrea/antrea-agent.conf; install_cni"
    )
    works = datapath == "netdev" or Path("/sys/module/openvswitch").exists()
    assert done.returncode == (0 if works else 1)
    assert works or "run 'modprobe openvswitch' on the Node" in done.stderr
