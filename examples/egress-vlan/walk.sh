#!/usr/bin/env bash
# Egress IPs of a VLAN, step by step: examples/egress-vlan/walk.sh [--yes] [--name LAB]. Waits for Enter before each step.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=examples/egress-vlan
server=192.0.2.10 port=8181
yes= name=egress-vlan
while (($#)); do
    case $1 in
    -y | --yes) yes=1 ;;
    --name) name=${2:?--name needs the name of a lab}; shift ;;
    *) echo "usage: $here/walk.sh [--yes] [--name LAB]" >&2; exit 2 ;;
    esac
    shift
done
lab() { local verb=$1; shift; .venv/bin/antrea-lab "$verb" --name "$name" "$@"; }
kubectl() { lab kubectl "$@"; }
step() {
    printf '\n== %s\n' "$*"
    [[ $yes ]] || read -rp "(Enter) " < /dev/tty
}
run() { printf '$ %s\n' "$*"; "$@"; }
sees() { kubectl exec "$1" -- curl -s -m 2 "http://$server:$port/"; }
holder() { kubectl get egress egress-vlan -o 'jsonpath={.status.egressNode}'; }
# SECONDS WHAT COMMAND...: waits until the command succeeds
until_true() {
    local end=$((SECONDS + $1)) what=$2; shift 2
    until "$@"; do
        ((SECONDS < end)) || { echo "still not: $what" >&2; exit 1; }
        sleep 0.2
    done
}
seen_as() { [[ $(sees "$1" || true) == "$2" ]]; }
moved() { local now; now=$(holder) && [[ $now && $now != "$1" ]]; }
known() { [[ $(holder) ]]; }
home_again() { [[ $(holder) == "$1" ]]; }

[[ -x .venv/bin/antrea-lab ]] || scripts/bootstrap
if ! lab status > /dev/null 2>&1; then
    step "A cluster with three workers whose cards are VLAN trunks"
    run lab up --config $here/lab.yaml
fi
.venv/bin/antrea-lab exec --name "$name" outside -- python3 $PWD/$here/whoami.py $server $port &
whoami=$!
trap 'kill $whoami 2>/dev/null || true' EXIT

step "Three Pods on node-1. Without an Egress a server outside sees the address of their Node"
run kubectl apply -f $here/pods.yaml
run kubectl wait --for=condition=Ready pod/client pod/second pod/other --timeout=60s
until_true 20 "an answer of the server outside" sees client
node=$(sees client)

step "A pool of addresses in VLAN 181. No Node may hold them yet: the label comes later"
run kubectl apply -f $here/pool.yaml
run kubectl get externalippools.crd.antrea.io
run kubectl label nodes node-2 node-3 egress-role=egress-node --overwrite

step "An Egress for Pods with app=egress-1. Its status is dropped with a warning: it does not choose the Node"
run kubectl apply -f $here/egress.yaml
until_true 30 "a Node that holds the address" known
run kubectl get egress
run kubectl get externalippools.crd.antrea.io
until_true 20 "the Egress IP of client" seen_as client 172.18.181.40
echo "client is seen as $(sees client), other as $(sees other); before, client was seen as $node"

step "The device of the VLAN on the Egress Node"
first=$(holder)
run lab exec "$first" -- ip address show antrea-ext.181

step "A second pool in VLAN 216, for other Pods, at the same time"
run kubectl apply -f $here/second.yaml
until_true 30 "the Egress IP of second" seen_as second 172.18.216.65
echo "client is seen as $(sees client), second as $(sees second), other as $(sees other)"

step "The Egress Node loses its power: another one takes the address over"
run lab fault "$first" power-off
off=$(date +%s%N)
until_true 30 "an answer through another Node" seen_as client 172.18.181.40
echo "client is seen as 172.18.181.40 again $((($(date +%s%N) - off) / 1000000)) ms after the power went (to the next try that got an answer)"
until_true 20 "the name of the next Node" moved "$first"
run kubectl get egress

step "It gets its power back, and the address with it"
run lab fault "$first" power-on
until_true 60 "the address at $first" home_again "$first"
run kubectl get egress
until_true 20 "the Egress IP of client" seen_as client 172.18.181.40
echo "client is seen as $(sees client)"

printf '\nThat was it. `.venv/bin/antrea-lab down --name %s` removes the lab.\n' "$name"
