"""The messages, with the numbers of upstream's package: what is on the wire is theirs, byte by byte.

Enumerations are numbers here, which the wire makes no difference between; the values are those of `antrea.apis.flow`.
parity: pkg/apis/flow/v1alpha1/flow.proto, service.proto
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "antrea_io.antrea.pkg.apis.flow.v1alpha1"
EXPORT: Final = f"/{PACKAGE}.FlowExportService/Export"
"""Path of the call by which agents send: a stream of ExportRequest, one ExportResponse."""
GET_FLOWS: Final = f"/{PACKAGE}.FlowStreamService/GetFlows"
"""Path of the call by which records are asked for: one GetFlowsRequest, a stream of GetFlowsResponse."""
_FILE: Final = "flow.proto"
_KINDS: Final = {
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}
_COUNTS: Final = "packet_total_count packet_delta_count octet_total_count octet_delta_count"
_POLICY: Final = (
    "{0}_network_policy_type:{1}:int32 {0}_network_policy_namespace:{2}:string {0}_network_policy_name:{3}:string"
    " {0}_network_policy_uid:{4}:string {0}_network_policy_rule_name:{5}:string"
    " {0}_network_policy_rule_action:{6}:int32"
)
_END: Final = (
    "{0}_pod_namespace:{1}:string {0}_pod_name:{2}:string {0}_pod_uid:{3}:string {0}_pod_labels:{4}:Labels"
    " {0}_node_name:{5}:string {0}_node_uid:{6}:string"
)
MESSAGES: Final = {
    # google.protobuf.Timestamp, whose fields these are
    "Timestamp": "seconds:1:int64 nanos:2:int32",
    "IPFIX": "export_time:1:Timestamp sequence_number:2:uint32 observation_domain_id:3:uint32 exporter_ip:4:string",
    "IP": "version:1:int32 source:2:bytes destination:3:bytes",
    "TCP": "state_name:1:string",
    "Transport": "protocol_number:1:uint32 source_port:2:uint32 destination_port:3:uint32 TCP:4:TCP",
    "Stats": " ".join(f"{name}:{at}:uint64" for at, name in enumerate(_COUNTS.split(), 1)),
    # an entry of a map
    "Label": "key:1:string value:2:string",
    "Labels": "labels:1:Label*",
    "Kubernetes": (
        "flow_type:1:int32 "
        + _END.format("source", 2, 3, 4, 5, 6, 7)
        + " "
        + _END.format("destination", 8, 9, 10, 11, 12, 13)
        + " destination_cluster_ip:14:bytes destination_service_port:15:uint32 destination_service_port_name:16:string"
        " destination_service_uid:17:string "
        + _POLICY.format("ingress", 18, 19, 20, 21, 22, 23)
        + " "
        + _POLICY.format("egress", 24, 25, 26, 27, 28, 29)
        + " egress_name:30:string egress_ip:31:bytes egress_node_name:32:string egress_node_uid:33:string"
        " egress_uid:34:string destination_service_ip:35:bytes"
    ),
    "App": "protocol_name:1:string http_vals:2:bytes",
    "Aggregation": (
        "end_ts_from_source:1:Timestamp end_ts_from_destination:2:Timestamp"
        " stats_from_source:3:Stats reverse_stats_from_source:4:Stats"
        " stats_from_destination:5:Stats reverse_stats_from_destination:6:Stats"
        " throughput_from_source:7:uint64 reverse_throughput_from_source:8:uint64"
        " throughput_from_destination:9:uint64 reverse_throughput_from_destination:10:uint64"
        " throughput:11:uint64 reverse_throughput:12:uint64"
    ),
    "Flow": (
        "id:1:string ipfix:2:IPFIX start_ts:3:Timestamp end_ts:4:Timestamp end_reason:5:int32 ip:6:IP"
        " transport:7:Transport k8s:8:Kubernetes stats:9:Stats reverse_stats:10:Stats app:11:App"
        " flow_direction:12:int32 aggregation:13:Aggregation proxy_snat_ip:14:bytes proxy_snat_port:15:uint32"
        # ours, which upstream skips: it is there if the source is not known to have opened the connection
        " is_direction_unknown:1000:bool"
    ),
    "ExportRequest": "flows:1:Flow*",
    "ExportResponse": "",
    "FlowFilter": (
        "namespaces:1:string* pod_names:2:string* pod_label_selector:3:string service_names:4:string*"
        " flow_types:5:int32* ips:6:string* direction:7:int32"
    ),
    "GetFlowsRequest": "filters:1:FlowFilter* since:2:Timestamp max_count:3:uint32 follow:4:bool",
    "GetFlowsResponse": "flows:1:Flow* dropped_count:2:uint64",
}
"""Fields of each message as name:number:kind, with a star if there are any number of them."""


def _file() -> FileDescriptorProto:
    made = FileDescriptorProto(name=_FILE, package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = made.message_type.add(name=name)
        for text in fields.split():
            field, number, kind = text.split(":")
            added = message.field.add(
                name=field,
                number=int(number),
                label=FieldDescriptorProto.LABEL_REPEATED
                if kind.endswith("*")
                else FieldDescriptorProto.LABEL_OPTIONAL,
            )
            kind = kind.rstrip("*")
            if kind in _KINDS:
                added.type = _KINDS[kind]
            else:
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    return made


_pool = DescriptorPool()
_pool.Add(_file())


def _message(name: str) -> Any:
    """The class of a message, which protobuf makes at run time."""
    return GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Flow = _message("Flow")
ExportRequest = _message("ExportRequest")
ExportResponse = _message("ExportResponse")
GetFlowsRequest = _message("GetFlowsRequest")
GetFlowsResponse = _message("GetFlowsResponse")
