sbatch --job-name=maze --output=maze-%j.log --nodes=1 --ntasks-per-node=8 --gpus-per-node=8 --export=HOME,PATH --requeue --open-mode=append --signal=INT@120 <<'END'
#!/usr/bin/env bash
set -euo pipefail
code=0
srun --export=ALL --kill-on-bad-exit=1 --gpu-bind=none env 'XLA_FLAGS=--a --b' .venv/bin/python -m agentrl_jax.launch.train --config=/repository/configs/wordle_grpo.py:smoke --run_dir=runs/maze '--config.name=it'"'"'s $(mine)' || code=$?
if ((code == 130 && ${SLURM_RESTART_COUNT:-0} < 20)); then
  scontrol requeue "$SLURM_JOB_ID" # out of time: it saved and exited, and resumes later
fi
exit "$code"
END
