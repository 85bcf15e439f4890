#!/bin/bash
# tests/slurm.sh BUILD - the Slurm form where Slurm is installed (Debian: slurm-wlm): one machine as four nodes, a
# stub in place of torchrun. Ranks and addresses, the end of the job with its first failed node, one restart.
set -eu
program=$(realpath "$1")/moesim
export MOESIM_DATA=$PWD
for tool in slurmctld slurmd sbatch scontrol; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null || { echo "skipped: no $tool (slurm-wlm)"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo "skipped: slurmd needs root here"; exit 77; }
PATH=$PATH:/usr/sbin
folder=$(mktemp -d)
port=$((20000 + $$ % 20000))
host=$(hostname -s)
stop() {
  for pid in "$folder"/*.pid; do [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null; done
  rm -rf "$folder" 2>/dev/null || { sleep 1; rm -rf "$folder"; } # the daemons write until they have ended
}
trap stop EXIT
fail() {
  echo "FAILED: $*"
  tail -n 20 "$folder"/*.log "$folder"/out/* 2>/dev/null
  exit 1
}
mkdir -p "$folder/state" "$folder/bin" "$folder/out" "$folder"/spool.node{0..3}
cat >"$folder/slurm.conf" <<END
ClusterName=moesim
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
GresTypes=gpu
JobCompType=jobcomp/none
KillWait=1
MinJobAge=300
SlurmctldPidFile=$folder/ctl.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/ctl.log
SlurmdLogFile=$folder/%n.log
SlurmdSpoolDir=$folder/spool.%n
StateSaveLocation=$folder/state
NodeName=node[0-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 4))] CPUs=1 Gres=gpu:8
PartitionName=all Nodes=ALL Default=YES State=UP
END
for gpu in 0 1 2 3 4 5 6 7; do ln -s /dev/null "$folder/gpu$gpu"; done
echo "Name=gpu File=$folder/gpu[0-7]" >"$folder/gres.conf"
export SLURM_CONF=$folder/slurm.conf OUT=$folder/out
# What torchrun was called with; node 2 fails as often as it is told to, the others would go on for a minute.
cat >"$folder/bin/torchrun" <<'END'
#!/bin/bash
echo "$NODE_RANK $MASTER_ADDR $MASTER_PORT $*" >"$OUT/${SLURM_RESTART_COUNT:-0}.$NODE_RANK"
[ -e "$OUT/failures" ] || exit 0
[ "$NODE_RANK" = 2 ] && { sleep 1; rm "$OUT/failures"; exit 7; }
sleep 60
END
chmod +x "$folder/bin/torchrun"
export PATH=$folder/bin:$PATH
slurmctld
for node in 0 1 2 3; do slurmd -N node$node; done
for try in $(seq 50); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 4 ] && break
  [ "$try" -lt 50 ] || fail "four nodes do not come up"
  sleep 0.2
done

cat >"$folder/run.json" <<'END'
{"schema": 1, "name": "four", "model": "llama3-8b", "hardware": "h100-sxm", "gpus": 32,
 "training": {"micro_batch_size": 1, "global_batch_size": 32, "seq_length": 4096}, "layout": {"tp": 4, "pp": 2}}
END
cd "$folder"
# The job of a script, once it has ended: "STATE EXITCODE RESTARTS".
job_of() {
  local id state
  id=$(sbatch --parsable --time=5 "$1") || return 1
  for _ in $(seq 300); do
    state=$(scontrol show job "$id" | grep -oE '(JobState|ExitCode|Restarts|Reason)=[^ ]*' | cut -d = -f 2 |
      tr '\n' ' ')
    case $state in
      COMPLETED* | FAILED* | CANCELLED* | TIMEOUT* | NODE_FAIL*) echo "$state"; return 0 ;;
      *BeginTime*) scontrol update jobid="$id" StartTime=now ;; # a job that comes back waits two minutes else
    esac
    sleep 0.2
  done
  echo "not ended: $state"
}

"$program" launch --form slurm --out "$folder/plain.sh" run.json
ended=$(job_of plain.sh)
case $ended in COMPLETED*" 0:0 "*) ;; *) fail "a run without failures ended as $ended" ;; esac
for node in 0 1 2 3; do
  grep -q "^$node node0 29500 --nnodes 4 --nproc_per_node 8 --node_rank $node --master_addr node0 " "$OUT/0.$node" ||
    fail "node $node was called with $(cut -c -120 "$OUT/0.$node")"
done

touch "$OUT/failures"
start=$SECONDS
ended=$(job_of plain.sh)
case $ended in FAILED*) ;; *) fail "a run with a failed node ended as $ended" ;; esac
[ $((SECONDS - start)) -lt 40 ] || fail "the other nodes went on for $((SECONDS - start)) s"

rm -f "$OUT"/*
touch "$OUT/failures"
"$program" launch --form slurm --restarts 2 --out "$folder/again.sh" run.json
ended=$(job_of again.sh)
case $ended in COMPLETED*) ;; *) fail "a run that may restart ended as $ended" ;; esac
[ -e "$OUT/1.3" ] || fail "it did not start again: $(ls "$OUT")"
grep -q "restart 1 of 2 after status" "$folder"/four-*.log || fail "the log does not go on"
echo "ranks, addresses, failure and restart on four nodes: as they must be"
