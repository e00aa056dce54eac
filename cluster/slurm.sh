#!/usr/bin/env bash
# A sweep on SLURM: Ray's head and the driver on the first node, workers on the others, continued after a pre-emption.
# Submit it from the top of this repository, which all nodes must see, with the .venv that `make setup` created there:
#
#   sbatch cluster/slurm.sh sweeps/quickstart.yaml --set seeds=3
#   disentune status quickstart --watch
#   scancel JOB                                # ends it; the same sbatch continues from the last checkpoints
#
# If your site requires these: remove one # and change the value, or give the option to sbatch itself.
##SBATCH --partition=CHANGE_ME
##SBATCH --account=CHANGE_ME
#
#SBATCH --job-name=disentune
#SBATCH --output=disentune-%j.log
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --open-mode=append
set -euo pipefail

sweep=${1:?"which sweep? sbatch cluster/slurm.sh sweeps/quickstart.yaml"}
shift
export DISENTUNE_STORAGE=${DISENTUNE_STORAGE:-$PWD/runs} # a folder that all nodes see
export DISENTUNE_DATA=${DISENTUNE_DATA:-$PWD/data}       # prepared data sets; a folder that all nodes see
export OMP_NUM_THREADS=1 RAY_AUTH_MODE=token
export RAY_health_check_period_ms=2000 RAY_health_check_timeout_ms=5000 RAY_health_check_failure_threshold=5
export PATH=$PWD/.venv/bin:$PATH

# A token for this job only: nobody can use the ports of the nodes without it.
umask 077
mkdir -p "$HOME/.ray"
export RAY_AUTH_TOKEN_PATH=$HOME/.ray/auth_token_$SLURM_JOB_ID
[ -s "$RAY_AUTH_TOKEN_PATH" ] || python -c 'import secrets; print(secrets.token_hex(32))' > "$RAY_AUTH_TOKEN_PATH"

# Ports for this job only, so that two jobs can share a node.
port=$((20000 + SLURM_JOB_ID % 20000))
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}'):$port
scratch=/tmp/ray-$SLURM_JOB_ID

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --block --node-ip-address="${address%:*}" --port="$port" --temp-dir="$scratch" \
  --dashboard-host=127.0.0.1 --dashboard-port=$((port + 1)) \
  --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" &
others=$((SLURM_JOB_NUM_NODES - 1))
if [ "$others" -gt 0 ]; then
  srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" \
    bash -c "until ray start --block --address=$address --num-cpus=$SLURM_CPUS_PER_TASK --num-gpus=${SLURM_GPUS_ON_NODE:-0}; do sleep 5; done" &
fi

# The driver is restarted after a crash by its supervisor, and after a pre-emption or the time limit by the queue: SLURM sends
# TERM two minutes before the end, the trials checkpoint, and the job is put back into the queue.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" bash -c '
  until ray status --address="$0" > /dev/null 2>&1; do sleep 2; done
  exec python -m disentune.cluster.supervisor -- run "$@" --address "$0"' "$address" "$sweep" "$@" &
driver=$!
asked=0
trap 'asked=1; kill -TERM "$driver"' TERM
set +e
wait "$driver"
code=$?
while kill -0 "$driver" 2> /dev/null; do wait "$driver"; code=$?; done # a trap interrupts the first wait
if [ "$asked" = 1 ] && [ "$code" != 0 ]; then
  scontrol requeue "$SLURM_JOB_ID"
else
  rm -f "$RAY_AUTH_TOKEN_PATH"
fi
exit "$code"
