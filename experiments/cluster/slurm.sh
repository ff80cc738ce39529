#!/bin/bash
# A sweep on SLURM: sbatch experiments/cluster/slurm.sh experiments/quickstart.toml runs/quickstart
# One Ray node on each machine, the sweep on the first. Submitted again it continues where it was.
#SBATCH --job-name=fedgps
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail

experiment=${1:?usage: slurm.sh EXPERIMENT.toml RESULTS_FOLDER}
results=${2:?usage: slurm.sh EXPERIMENT.toml RESULTS_FOLDER}
bin=$PWD/.venv/bin
port=$((20000 + SLURM_JOB_ID % 20000))

export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')  # of this job only
export RAY_AUTH_TOKEN

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}

srun --nodes=1 --ntasks=1 -w "$head" "$bin/ray" start --head --port="$port" \
    --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
sleep 15
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 -w "$node" "$bin/ray" start --address="$head:$port" \
        --num-cpus="$SLURM_CPUS_PER_TASK" --block &
done
sleep 15

srun --overlap --nodes=1 --ntasks=1 -w "$head" "$bin/fedgps-ray" sweep "$experiment" \
    --address "$head:$port" --client-gpus 0.2 --out "$results" &
sweep=$!
trap 'kill -TERM "$sweep"' TERM  # two minutes before the end: checkpoints, then nothing is lost
wait "$sweep"
