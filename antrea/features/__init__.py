"""Features, one folder each: pure units over facts. `FEATURES` is the one list of them.

What a folder `x` may hold, and which program loads it (`antrea.features.framework.plug`); a module may also be a folder, whose
module `feature` is loaded then:

| Module | Defines | Loaded by |
|---|---|---|
| `x/gate.py` | `GATES`, each a `Gate` | all programs |
| `x/crd.py` | `CRDS`, each a `Crd` | the controller, and what generates manifests |
| `x/doctor.py` | `CONDITIONS`, `OBJECT_CHECKS`, `METADATA_CHECKS`, `POLICY_KINDS` and `GATED_KINDS` (`framework/doctor.py`) | `antctl doctor` |
| `x/antctl.py` | `COMMANDS`, each a `DataCommand`, and `ACTIONS`, each an `Action` | `antctl` |
| `x/diversion.py` | `DIVERSIONS`, each a `Diversion` | the agent |
| `x/api_resource.py` | `RESOURCES`, each a `Resource` of the aggregated API | the controller, where it serves |
| `x/rbac.py` | `AGENT_RULES`, `CONTROLLER_RULES` and `ANTCTL_RULES`, each a `Rule` | what generates manifests |
| `x/enforcement.py` | `ENFORCEMENTS`, each an `Enforcement` of policies | the agent |
| `x/annotation.py` | `ANNOTATIONS`, each an `AnnotationRule` | the controller |
| `x/agent.py` | `FEATURES`, each an `AgentFeature` | the agent |
| `x/controller.py` | `FEATURES`, each a `ControllerFeature` | the controller, where it computes |
| `x/metrics.py` | `METRICS`, each a `ControllerMetric` | the controller, where it computes |
| `x/disabled.py` | `FEATURES`, each a `ControllerFeature` that runs while the gate it names is off | the controller, where it computes |
| `x/admission.py` | `WEBHOOKS`, each a `Webhook`, and `WATCHED`, the collections that they read | the controller, where it serves |
| `x/conversion.py` | `CONVERSIONS`, each a `Conversion` | the controller, where it serves |

Effects are in its parts, which alone may import `antrea.outside` and the like (docs/architecture.md, "Add a feature"); in a folder the
module `part` is loaded:

| Module | Defines | Loaded by |
|---|---|---|
| `x/agent_part.py` | `PART`, which makes a `Part` | the agent |
| `x/controller_part.py` | `PART`, which makes a `ControllerPart` | the controller, where it computes |
| `x/idle_metrics_part.py` | `METRICS`, each a `Metric` that is 0 while the feature is off | the agent |
| `x/antctl_part/` | commands that `ACTIONS` name; it alone may import `antrea.antctl` | `antctl`, as the command runs |
"""

FEATURES: tuple[str, ...] = (
    "node_route",
    "pod_connectivity",
    "node_network",
    "membership",
    "proxy",
    "node_port_local",
    "grouping",
    "network_policy",
    "l7_network_policy",
    "admin_policy",
    "node_policy",
    "namespace_label",
    "external_ip_pool",
    "egress",
    "service_external_ip",
    "bgp_policy",
    "ip_pool",
    "flow_export",
    "support_bundle_collection",
    "traffic_control",
    "l7_flow_export",
    "packet_capture",
    "traceflow",
    "node_latency",
    "node_config",
    "node_ipam",
    "external_node",
)
"""Names of folders. A part of a program may use those of features that are listed before its own; pages and manifests list
webhooks in this order."""
