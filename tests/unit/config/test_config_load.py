"""Reading antrea-agent.conf and antrea-controller.conf."""

from pathlib import Path

import pytest

from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import UnknownKey, known_paths, parse, read
from antrea.config.shape import host_and_port, seconds
from antrea.errors import Invalid


@pytest.mark.parametrize(
    "text", ["", "---\n", "# only a comment\n", "egress:\nfeatureGates:\nserviceCIDR: ''\n"]
)
def test_config_an_empty_file_null_sections_and_empty_texts_mean_the_defaults(text: str) -> None:
    assert parse(AgentConfig, text).config == AgentConfig()
    assert parse(AgentConfig, text).unknown == ()


def test_config_values_of_nested_sections_are_read_and_the_rest_keeps_its_default() -> None:
    text = """
    trafficEncapMode: NOENCAP
    noSNAT: true
    defaultMTU: 1400
    apiPort: 0
    egress: {exceptCIDRs: [10.0.0.0/8, "fd00::/8"], maxEgressIPsPerNode: 10}
    antreaProxy:
      skipServices: [kube-system/kube-dns, 10.96.0.10]
    multicast: {igmpQueryVersions: [3]}
    featureGates: {Egress: false}
    """
    config = parse(AgentConfig, text).config
    assert config.traffic_encap_mode == "noEncap"
    assert (config.no_snat, config.default_mtu, config.api_port) == (True, 1400, 10350)
    assert config.egress.except_cidrs == ("10.0.0.0/8", "fd00::/8")
    assert config.egress.max_egress_ips_per_node == 10
    assert config.egress.unique_mac_for_sub_interfaces
    assert config.antrea_proxy.skip_services == ("kube-system/kube-dns", "10.96.0.10")
    assert config.multicast.igmp_query_versions == (3,)
    assert config.feature_gates == {"Egress": False}


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("ovsbridge: br0", UnknownKey("ovsbridge", "ovsBridge")),
        ("proxyAll: true", UnknownKey("proxyAll", "antreaProxy.proxyAll")),
        ("egress: {exceptCIDR: []}", UnknownKey("egress.exceptCIDR", "egress.exceptCIDRs")),
        ("egress: {clusterport: 3}", UnknownKey("egress.clusterport", "clusterPort")),
        ("nplPortRange: 1-2", UnknownKey("nplPortRange", "nodePortLocal.portRange")),
        ("enable: true", UnknownKey("enable")),
        ("somethingElse: {deep: 1}", UnknownKey("somethingElse")),
        ("1: 2", UnknownKey("1")),
        (
            "externalNode: {policyBypassRules: [{directon: 1, direction: ingress, protocol: ip, cidr: 1.0.0.0/8}]}",
            UnknownKey(
                "externalNode.policyBypassRules[0].directon", "externalNode.policyBypassRules[].direction"
            ),
        ),
    ],
)
def test_config_an_unknown_key_is_one_warning_that_names_the_nearest_known_key(
    text: str, unknown: UnknownKey
) -> None:
    assert parse(AgentConfig, text).unknown == (unknown,)


def test_config_an_unknown_key_says_where_it_belongs_or_what_was_meant() -> None:
    sentences = [row.sentence for row in parse(AgentConfig, "proxyAll: 1\novsBrige: 1\nzzz: 1").unknown]
    assert sentences == [
        "unknown key proxyAll is ignored: proxyAll belongs under antreaProxy",
        "unknown key ovsBrige is ignored: did you mean ovsBridge?",
        "unknown key zzz is ignored",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("apiPort: abc", "apiPort: expected int, got a text"),
        ("apiPort: 70000", "apiPort: expected int <= 65535"),
        ("apiPort: true", "apiPort: expected int, got bool"),
        ("noSNAT: 'yes'", "noSNAT: expected bool, got a text"),
        ("egress: 3", "egress: expected a mapping, got int"),
        ("transportInterfaceCIDRs: 10.0.0.0/8", "transportInterfaceCIDRs: expected a list, got a text"),
        ("trafficEncapMode: foo", "trafficEncapMode: 'foo' is none of encap, noEncap, hybrid, networkPolicyOnly"),
        ("egress: {exceptCIDRs: [10.0.0.0/33]}", "egress.exceptCIDRs[0]: '10.0.0.0/33' is not a CIDR such as 10.96.0.0/12"),
        ("egress: {maxEgressIPsPerNode: 256}", "egress.maxEgressIPsPerNode: expected int <= 255"),
        ("multicast: {igmpQueryVersions: [4]}", "multicast.igmpQueryVersions[0]: invalid enum value 4"),
        ("multicast: {igmpQueryInterval: 5}", "multicast.igmpQueryInterval: expected a text, got int"),
        ("multicast: {igmpQueryInterval: 5 s}", "multicast.igmpQueryInterval: '5 s' is not a duration such as 5s or 1m30s"),
        ("nodePortLocal: {portRange: 9-1}", "nodePortLocal.portRange: '9-1' is not a port range such as 61000-62000"),
        ("dnsServerOverride: a:b:c:99999999", None),
        ("dnsServerOverride: 10.0.0.1:0", "dnsServerOverride: '10.0.0.1:0' is not a host or host:port"),
        ("antreaProxy: {skipServices: [UPPER]}", "antreaProxy.skipServices[0]: 'UPPER' is not a ClusterIP or namespace/name"),
        ("antreaProxy: {serviceHealthCheckServerBindAddress: host:1}", "antreaProxy.serviceHealthCheckServerBindAddress: 'host:1' is not an IP address and port such as 0.0.0.0:10256"),
        ("podCIDRs: 10.0.0.0/8,x", "podCIDRs: '10.0.0.0/8,x' is not a comma-separated list of CIDRs"),
        ("featureGates: {Egress: 1}", "featureGates.Egress: expected bool, got int"),
        ("tlsMinVersion: VersionTLS9", "tlsMinVersion: 'VersionTLS9' is none of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13"),
        ("secondaryNetwork: {ovsBridges: [{}]}", "secondaryNetwork.ovsBridges[0]: missing required field bridgeName"),
        ("[1]", "expected a mapping, got a list"),
    ],
)  # fmt: skip
def test_config_a_wrong_type_or_value_is_one_clear_line(text: str, line: str | None) -> None:
    if line is None:
        assert parse(AgentConfig, text).config.dns_server_override == "a:b:c:99999999"
        return
    with pytest.raises(Invalid) as error:
        parse(AgentConfig, text)
    where = (
        "antrea-agent.conf" if line.startswith("expected") else "antrea-agent.conf: " + line.split(": ")[0]
    )
    assert error.value.path == where
    assert str(error.value) == f"antrea-agent.conf: {line}"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("defaultMTU: 0x_", "invalid literal for int() with base 16: ''"),
        ("defaultMTU: !!bool x", "'x'"),
        (
            "defaultMTU: " + "9" * 5000,
            "Exceeds the limit (4300 digits) for integer string conversion: value has",
        ),
    ],
)
def test_config_what_yaml_itself_trips_over_does_not_end_the_program(text: str, why: str) -> None:
    with pytest.raises(Invalid) as error:
        parse(AgentConfig, text)
    assert str(error.value).startswith(f"antrea-agent.conf: a value cannot be read: {why}")


def test_config_a_file_that_is_not_yaml_or_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(
        Invalid, match=r"^antrea-agent.conf: not YAML: did not find .* in line \d, column \d$"
    ):
        parse(AgentConfig, "a: [")
    with pytest.raises(Invalid, match=r"absent.conf: cannot be read: No such file or directory"):
        parse(AgentConfig, read(tmp_path / "absent.conf"))
    (tmp_path / "latin.conf").write_bytes(b"ovsBridge: \xff")
    with pytest.raises(Invalid, match=r"latin.conf: cannot be read: "):
        parse(AgentConfig, read(tmp_path / "latin.conf"))


def test_config_the_controller_reads_its_own_keys(tmp_path: Path) -> None:
    path = tmp_path / "antrea-controller.conf"
    path.write_text(
        "nodeIPAM: {clusterCIDRs: [10.0.0.0/16], nodeCIDRMaskSizeIPv6: 0}\nselfSignedCert: false\n"
    )
    config = parse(ControllerConfig, read(path)).config
    assert config.node_ipam.cluster_cidrs == ("10.0.0.0/16",)
    assert (config.node_ipam.node_cidr_mask_size_ipv4, config.node_ipam.node_cidr_mask_size_ipv6) == (24, 64)
    assert (config.self_signed_cert, config.api_port) == (False, 10349)
    with pytest.raises(
        Invalid, match=r"antrea-controller.conf: nodeIPAM.nodeCIDRMaskSizeIPv4: expected int >= 16"
    ):
        parse(ControllerConfig, "nodeIPAM: {nodeCIDRMaskSizeIPv4: 9}")


def test_config_keys_are_spelled_as_upstream_spells_them() -> None:
    agent = set(known_paths(AgentConfig))
    assert {
        "cniSocket", "noSNAT", "podCIDRs", "defaultMTU", "disableTXChecksumOffload", "serviceCIDRv6", "serviceCIDR",
        "kubeAPIServerOverride", "dnsServerOverride", "fqdnCacheMinTTL", "transportInterfaceCIDRs", "wireGuard.port",
        "egress.exceptCIDRs", "egress.maxEgressIPsPerNode", "egress.uniqueMACForSubInterfaces",
        "antreaProxy.proxyLoadBalancerIPs", "multicluster.wireGuard.port", "memberlist.gossipVerifyIncoming",
        "clientConnection.qps", "antreaClientConnection.kubeconfig", "secondaryNetwork.ovsBridges",
    } <= agent  # fmt: skip
    assert {"nodeIPAM.enableNodeIPAM", "ipsecCSRSigner.selfSignedCA", "clientCAFile"} <= set(
        known_paths(ControllerConfig)
    )


@pytest.mark.parametrize(
    ("text", "length"), [("5s", 5), ("1m30s", 90), ("1.5h", 5400), ("100ms", 0.1), ("0", 0), (".5s", 0.5)]
)
def test_config_a_duration_is_read_as_go_reads_it(text: str, length: float) -> None:
    assert seconds(text) == pytest.approx(length)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "5d", "-5s", "1m30", "\u0665s", "9" * 250_000, "9" * 98 + "h", "2562048h"]
)
def test_config_what_go_refuses_as_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("10.0.0.1", ("10.0.0.1", 53)),
        ("10.0.0.1:5", ("10.0.0.1", 5)),
        ("fd00::a", ("fd00::a", 53)),
        ("[fd00::a]:54", ("fd00::a", 54)),
        ("[fd00::a]", ("fd00::a", 53)),
    ],
)
def test_config_host_and_port_are_split_for_both_families(text: str, split: tuple[str, int]) -> None:
    assert host_and_port(text, 53) == split


def test_config_all_wrong_values_are_named_at_once() -> None:
    text = """
    serviceCIDR: x
    defaultMTU: abc
    trafficEncapMode: bogus
    egress: {exceptCIDRs: [10.0.0.0/33], maxEgressIPsPerNode: 256}
    antreaProxy: 3
    secondaryNetwork: {ovsBridges: [{}]}
    """
    with pytest.raises(Invalid) as error:
        parse(AgentConfig, text)
    assert error.value.path == "antrea-agent.conf: serviceCIDR"
    assert str(error.value).split("; ") == [
        "antrea-agent.conf: serviceCIDR: 'x' is not a CIDR such as 10.96.0.0/12",
        "trafficEncapMode: 'bogus' is none of encap, noEncap, hybrid, networkPolicyOnly",
        "egress.exceptCIDRs[0]: '10.0.0.0/33' is not a CIDR such as 10.96.0.0/12",
        "defaultMTU: expected int, got a text",
        "egress.maxEgressIPsPerNode: expected int <= 255",
        "antreaProxy: expected a mapping, got int",
        "secondaryNetwork.ovsBridges[0]: missing required field bridgeName",
    ]


def test_config_a_refusal_has_an_end() -> None:
    text = "\n".join(f"{key}: [[]]" for key in known_paths(AgentConfig) if "." not in key)
    with pytest.raises(Invalid, match=r"; \d+ more values are wrong$") as error:
        parse(AgentConfig, text)
    assert len(str(error.value).split("; ")) == 11
