sbatch --job-name=maze --output=maze-%j.log --nodes=4 --ntasks-per-node=1 --gpus-per-node=8 --partition=gpu --time=24:00:00 --cpus-per-task=16 --export=HOME,PATH,WANDB_API_KEY --requeue --open-mode=append --signal=INT@120 <<'END'
#!/usr/bin/env bash
set -euo pipefail
export JAX_LOCAL_DEVICE_IDS=0,1,2,3,4,5,6,7
code=0
srun --export=ALL --kill-on-bad-exit=1 --gpu-bind=none --cpus-per-task=16 .venv/bin/python -m agentrl_jax.launch.train --config=/repository/configs/wordle_grpo.py:smoke --run_dir=runs/maze || code=$?
if ((code == 130 && ${SLURM_RESTART_COUNT:-0} < 20)); then
  scontrol requeue "$SLURM_JOB_ID" # out of time: it saved and exited, and resumes later
fi
exit "$code"
END
