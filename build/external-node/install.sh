#!/usr/bin/env bash
# Installs antrea-agent as a service of systemd on a machine outside the cluster: docs/external-node.md.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: install.sh --wheel FILE --config FILE --kubeconfig FILE --antrea-kubeconfig FILE [options]

  --wheel FILE               the package antrea, as `make wheel` writes it
  --config FILE              antrea-agent.conf
  --kubeconfig FILE          leads to kube-apiserver
  --antrea-kubeconfig FILE   leads to antrea-controller
  --ns NAME                  Namespace of the ExternalNode (default: as in the configuration)
  --nodename NAME            name of the ExternalNode (default: the host name)
  --agent PATH               an antrea-agent that is installed, in place of --wheel
  --root DIRECTORY           install below this directory, and start nothing
  --uninstall                stop and remove the service; delete the ExternalNode first, so that the interface comes back
TEXT
}

fail() { echo "install.sh: $*" >&2; exit 2; }

wheel='' config='' kubeconfig='' antrea_kubeconfig='' namespace='' agent='' root='' uninstall=''
node=$(hostname)
while (($#)); do
    case $1 in
        --wheel | --config | --kubeconfig | --antrea-kubeconfig | --ns | --nodename | --agent | --root)
            [[ ${2:-} && $2 != --* ]] || fail "$1 needs a value"
            case $1 in
                --wheel) wheel=$2 ;;
                --config) config=$2 ;;
                --kubeconfig) kubeconfig=$2 ;;
                --antrea-kubeconfig) antrea_kubeconfig=$2 ;;
                --ns) namespace=$2 ;;
                --nodename) node=$2 ;;
                --agent) agent=$2 ;;
                --root) root=$2 ;;
            esac
            shift 2 ;;
        --uninstall) uninstall=yes; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; fail "unknown option $1" ;;
    esac
done
unit=$root/etc/systemd/system/antrea-agent.service
guard=$root/etc/systemd/system/antrea-boot-guard.service

if [[ $uninstall ]]; then
    if [[ ! $root ]] && ovs-vsctl --timeout=10 --bare --columns=name find Port external_ids:antrea-type=uplink | grep -q .; then
        fail "an interface is still connected: delete the ExternalNode of this machine, and wait until it is given back"
    fi
    [[ $root ]] || systemctl disable --now antrea-agent antrea-boot-guard || true
    rm -f "$unit" "$guard"
    exit 0
fi

[[ $wheel || $agent ]] || { usage >&2; fail "--wheel is missing"; }
for file in "${config:-}" "${kubeconfig:-}" "${antrea_kubeconfig:-}"; do
    [[ -f $file ]] || { usage >&2; fail "${file:-an option is missing:} --config, --kubeconfig and --antrea-kubeconfig name files"; }
done
# names of objects, which go into the configuration and the unit
for name in "$node" ${namespace:+"$namespace"}; do
    [[ $name =~ ^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$ ]] || fail "$name is no name of a Kubernetes object"
done
if [[ ! $root ]]; then
    ovs-vsctl --timeout=10 show >/dev/null || fail "Open vSwitch does not run: install openvswitch-switch first"
fi
if [[ ! $agent ]]; then
    agent=/opt/antrea/bin/antrea-agent
    python3 -P -m venv "$root/opt/antrea"
    "$root/opt/antrea/bin/pip" install --quiet "$wheel"
fi
install -d -m 755 "$root/etc/antrea" "$root/var/log/antrea" "${unit%/*}"
install -m 600 "$config" "$root/etc/antrea/antrea-agent.conf"
install -m 600 "$kubeconfig" "$root/etc/antrea/antrea-agent.kubeconfig"
install -m 600 "$antrea_kubeconfig" "$root/etc/antrea/antrea-agent.antrea.kubeconfig"
if [[ $namespace ]]; then
    sed -i "s|^\( *\)#\? *externalNodeNamespace:.*|\1externalNodeNamespace: $namespace|" "$root/etc/antrea/antrea-agent.conf"
fi
cat >"$unit" <<UNIT
[Unit]
Description=Antrea agent of a machine outside the cluster
After=network-online.target openvswitch-switch.service openvswitch.service
Wants=network-online.target

[Service]
Environment=NODE_NAME=$node
ExecStart=$agent --config=/etc/antrea/antrea-agent.conf
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
UNIT
# the file is there while an interface is connected
cat >"$guard" <<'UNIT'
[Unit]
Description=Closes interfaces to new connections until antrea-agent enforces policies on them
DefaultDependencies=no
After=local-fs.target nftables.service
Before=network-pre.target shutdown.target
Wants=network-pre.target
Conflicts=shutdown.target
ConditionPathExists=/var/lib/antrea/boot-guard.nft

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=nft -f /var/lib/antrea/boot-guard.nft

[Install]
WantedBy=sysinit.target
UNIT
if [[ ! $root ]]; then
    systemctl daemon-reload
    systemctl enable antrea-boot-guard
    systemctl enable --now antrea-agent
    systemctl --no-pager status antrea-agent
fi
