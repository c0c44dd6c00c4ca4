"""TRL's GRPOTrainer on CPU: `--mode plain` generates one batch a line, `--mode env` and `train`
take one training step a line.

`plain` times `GRPOTrainer._generate` alone: every completion is exactly `new` tokens long; `train`
times all of a step but that. `env` is a multi-turn `environment_factory` run: the tiny random model
first learns the format of a tool call by a short supervised loop (untimed), since a random model
never calls a tool; what a call costs in tokens is then told to the other side, which plays the
same.
"""

import os

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import json
import random
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from measurer import Pipe, parse_flags
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import get_training_chat_template, qwen3_chat_template

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
SPECIALS += ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
DIGITS = 10
QUESTION = {"role": "user", "content": "Find the hidden digit."}
ANSWERS = ("the digit is higher", "the digit is lower")
# On a busy machine one thread can be faster than one a core: every repeat tries both, and the
# faster counts.
THREADS = sorted({1, len(os.sched_getaffinity(0))})
PACKAGES = ("trl", "torch", "transformers")


class Guess:
    """A hidden digit; the reward is how near the best guess came."""

    def reset(self, **options: Any) -> str | None:
        self.secret, self.distance = int(options.get("secret", 0)), DIGITS
        return None

    def guess(self, digit: int) -> str:
        """Guess the hidden digit.

        Args:
            digit: the digit to try

        Returns:
            whether the hidden digit is higher or lower.
        """
        self.distance = min(self.distance, abs(int(digit) - self.secret) + random.random() / 10)
        return ANSWERS[int(digit) >= self.secret]

    def get_reward(self) -> float:
        return 1.0 - self.distance / DIGITS


def dialogue(turns: int, rng: random.Random) -> list[dict[str, Any]]:
    """A user's question and `turns` tool calls with their answers."""
    messages: list[dict[str, Any]] = [QUESTION]
    for _ in range(turns):
        call = {
            "type": "function",
            "function": {"name": "guess", "arguments": {"digit": rng.randrange(DIGITS)}},
        }
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": "guess", "content": rng.choice(ANSWERS)})
    return messages


def make_tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """Byte-pair encoding trained on dialogues, with Qwen 3's chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    texts = [json.dumps(dialogue(4, random.Random(i))) for i in range(64)]
    tokenizer.train_from_iterator([*texts, qwen3_chat_template], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    fast.chat_template = qwen3_chat_template
    return fast


def make_model(args: Any, tokenizer: PreTrainedTokenizerFast) -> Any:
    """A random Qwen, float32."""
    config = AutoConfig.for_model(
        args.family,
        vocab_size=args.vocab,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        intermediate_size=args.hidden,
        max_position_embeddings=8192,
        tie_word_embeddings=args.family == "qwen3",
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        head_dim=args.head_size,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def train_tool_format(
    model: Any, tokenizer: PreTrainedTokenizerFast, turns: int, steps: int, batch: int = 8
) -> float:
    """A short supervised loop over dialogues; returns its last loss. A model so taught never stops
    calling the tool.
    """
    rng, optimizer = random.Random(0), torch.optim.AdamW(model.parameters(), lr=3e-3)
    template, tools, loss = (
        get_training_chat_template(tokenizer) or tokenizer.chat_template,
        [Guess().guess],
        None,
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    model.train()
    for _ in range(steps):
        ids = [
            tokenizer.apply_chat_template(
                dialogue(turns, rng),
                tools=tools,
                chat_template=template,
                tokenize=True,
                return_dict=False,
            )
            for _ in range(batch)
        ]
        width = max(map(len, ids))
        tokens = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in ids])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
        loss = model(
            input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return float(loss.detach())


class TimedTrainer(GRPOTrainer):
    """GRPOTrainer that notes how long the last rollout took, and what it was made of."""

    def _generate(self, prompts: Any, *more: Any, **options: Any) -> Any:
        began = time.perf_counter()
        out = super()._generate(prompts, *more, **options)
        seconds = time.perf_counter() - began
        prompt_ids, completion_ids, tool_mask, completions = out[:4]
        masks = tool_mask if tool_mask is not None else [[1] * len(ids) for ids in completion_ids]
        turns = [
            sum(m["role"] == "assistant" for m in c) if isinstance(c, list) else 1
            for c in completions
        ]
        self.last_rollout = {
            "rollout_seconds": seconds,
            "sampled_tokens": sum(map(sum, masks)),
            "turns": sum(turns) / len(turns),
            "prompt": sum(map(len, prompt_ids)) / len(prompt_ids),
            "observed_tokens": sum(len(m) - sum(m) for m in masks),
        }
        return out


class StepGate(TrainerCallback):
    """Lets as many training steps through for each line as there are thread counts, after `warm`
    free ones; tells the fastest.
    """

    def __init__(self, pipe: Pipe, args: Any, params: int) -> None:
        self._pipe, self._args, self._params = pipe, args, params
        self._measurements: list[dict[str, float]] = []
        self.trainer: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step - self._args.warm
        if step == 0:
            self._pipe.send_ready(
                PACKAGES, params=self._params, plays=self._episode_shape(), threads=THREADS
            )
        if step >= 0 and step % len(THREADS) == 0 and not self._pipe.wait_for_request():
            os._exit(0)
        torch.set_num_threads(THREADS[step % len(THREADS)])
        self._start_time = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        last = self.trainer.last_rollout
        rates = {name: last[name] for name in ("rollout_seconds", "sampled_tokens", "turns")}
        self._measurements.append({"seconds": time.perf_counter() - self._start_time} | rates)
        if state.global_step <= self._args.warm:
            self._measurements.clear()
        if len(self._measurements) == len(THREADS) and self._args.mode == "train":
            episodes = self._args.prompts * self._args.group
            self._pipe.send({
                "seconds": min(x["seconds"] - x["rollout_seconds"] for x in self._measurements),
                "sampled_tokens": last["sampled_tokens"] + self._args.prompt * episodes,
            })  # fmt: skip
            self._measurements.clear()
        if len(self._measurements) == len(THREADS):
            least = {
                name: min(x[name] for x in self._measurements)
                for name in ("seconds", "rollout_seconds")
            }
            self._pipe.send(self._measurements[-1] | least)
            self._measurements.clear()

    def _episode_shape(self) -> dict[str, int]:
        """What an episode was in the last warm step."""
        last, episodes = self.trainer.last_rollout, self._args.prompts * self._args.group
        return {
            "turns": round(last["turns"]), "prompt": round(last["prompt"]),
            "new": round(last["sampled_tokens"] / episodes / last["turns"]),
            "observation": round(last["observed_tokens"] / episodes / max(1, last["turns"] - 1)),
        }  # fmt: skip


def run_plain(trainer: Any, args: Any, pipe: Pipe, params: int) -> None:
    """Generate alone, once with each thread count a line; tells the faster."""
    # A special token is one token wherever it stands, so the prompt has exactly the length that is
    # asked for.
    prompts = ["<think>" * args.prompt] * (args.prompts * args.group)
    trainer.model.train()

    def repeat() -> dict[str, Any]:
        seconds = []
        for count in THREADS:
            torch.set_num_threads(count)
            trainer._generate(prompts)
            seconds.append(trainer.last_rollout["rollout_seconds"])
        return {
            "seconds": min(seconds),
            "sampled_tokens": trainer.last_rollout["sampled_tokens"],
            "prefill_tokens": args.prompt * len(prompts),
        }

    repeat()
    pipe.send_ready(PACKAGES, params=params, threads=THREADS)
    pipe.serve(repeat)


def main() -> None:
    sizes = {
        "prompts": 4,
        "group": 8,
        "prompt": 24,
        "new": 128,
        "turns": 4,
        "taught": 150,
        "warm": 2,
    }
    args, pipe = parse_flags(__doc__, ["plain", "env", "train"], **sizes), Pipe()
    torch.set_num_threads(THREADS[0])
    torch.manual_seed(0)
    random.seed(0)
    tokenizer = make_tokenizer(args.vocab)
    model = make_model(args, tokenizer)
    params = sum(p.numel() for p in model.parameters())
    multi = args.mode == "env"
    if multi:
        train_tool_format(model, tokenizer, args.turns + 1, args.taught)
    longest = args.turns * 128 if multi else args.new
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl_"),
        use_cpu=True,
        bf16=False,
        fp16=False,
        per_device_train_batch_size=args.prompts * args.group,
        gradient_accumulation_steps=1,
        num_generations=args.group,
        max_completion_length=longest,
        max_steps=10**6,
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        beta=0.0,
        # half: what it was taught, almost surely, so that all episodes are of one length
        temperature=0.5 if multi else 1.0,
        **{
            name: False
            for name in ("activation_checkpointing", "gradient_checkpointing")
            if name in GRPOConfig.__dataclass_fields__
        },
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        generation_kwargs=None if multi else {"min_new_tokens": args.new},
        chat_template_kwargs={"enable_thinking": False} if multi else None,
        max_tool_calling_iterations=args.turns - 1,
        dataloader_pin_memory=False,
    )
    rows = [
        {"prompt": [QUESTION] if multi else "<think>" * args.prompt, "secret": i % DIGITS}
        for i in range(1000)
    ]
    how = (
        {"environment_factory": Guess}
        if multi
        else {"reward_funcs": lambda completions, **_: [0.0] * len(completions)}
    )
    gate = StepGate(pipe, args, params)
    trainer = TimedTrainer(
        model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        callbacks=[] if args.mode == "plain" else [gate], **how,
    )  # fmt: skip
    gate.trainer = trainer
    if args.mode != "plain":
        trainer.train()
    else:
        run_plain(trainer, args, pipe, params)


if __name__ == "__main__":
    main()
