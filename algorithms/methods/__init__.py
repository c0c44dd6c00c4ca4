"""Published methods: each a function that fills the slots of a trainer's config with the values of a
paper, in the module of its family.

Every function takes further fields of the config as keywords, which override the method's. The
docstrings say which values are the paper's, which the released code's, and which are not published.

| method | arXiv | function | module |
|---|---|---|---|
| GRPO | 2402.03300 | `grpo` | `group_relative` |
| Dr.GRPO | 2503.20783 | `dr_grpo` | `group_relative` |
| DAPO | 2503.14476 | `dapo` | `group_relative` |
| GSPO | 2507.18071 | `gspo` | `group_relative` |
| CISPO | 2506.13585 | `cispo` | `group_relative` |
| RLOO | 2402.14740 | `rloo` | `group_relative` |
| REINFORCE++ | 2501.03262 | `reinforce_plus_plus`, `reinforce_plus_plus_with_baseline` | `group_relative` |
| GiGPO | 2505.10978 | `gigpo` | `group_relative` |
| PPO | 1707.06347 | `ppo`, `turn_ppo` | `actor_critic` |
| Bi-level GAE (RAGEN) | 2504.20073 | `bi_level_ppo` | `actor_critic` |
| VAPO | 2504.05118 | `vapo` | `actor_critic` |
| UI-TARS-2 | 2509.02544 | `ui_tars_2`, `FlywheelConfig` | `actor_critic`, `ui_tars2` |
| VLA-RL | 2505.18719 | `vla_rl` | `actor_critic` |
| UFO | 2507.14295 | `ufo` | `actor_critic` |
| A Practitioner's Guide | 2510.01132 | `practitioners_ppo`, `practitioners_rloo` | `actor_critic` |
| DART | 2509.23866 | `dart` | `gui` |
| ARPO (GUI) | 2505.16282 | `arpo_gui` | `gui` |
| ActiveVLN | 2509.12618 | `active_vln` | `gui` |
| UI-S1 | 2509.11543 | `ui_s1` | `gui` |
| SimpleTIR | 2509.02479 | `simpletir` | `tool_use` |
| ARPO | 2507.19849 | `arpo` | `tool_use` |
| AEPO | 2510.14545 | `aepo` | `tool_use` |
| SPEAR | 2509.22601 | `spear` | `tool_use` |
| IGPO | 2510.14967 | `igpo` | `tool_use` |
| SUPO | 2510.06727 | `supo` | `tool_use` |
| WebAgent-R1 | 2505.16421 | `webagent_r1` | `tool_use` |
| INSPO | 2512.01945 | `inspo` | `tool_use` |
| ReTool | 2504.11536 | `retool` | `code_use` |
| ARTIST | 2505.01441 | `artist` | `code_use` |
| R1-Code-Interpreter | 2505.21668 | `r1_code_interpreter` | `code_use` |
| MARS-SQL | 2511.01008 | `mars_sql` | `code_use` |
| DataMind | 2509.25084 | `datamind` | `code_use` |
| MGPO | 2507.05920 | `mgpo` | `vision` |
| ViGoRL | 2505.23678 | `vigorl` | `vision` |
| CodeVision | 2512.03746 | `codevision` | `vision` |
| FrameThinker | 2509.24304 | `framethinker` | `vision` |
| VRAG-RL | 2505.22019 | `vrag_rl` | `vision` |
| MetaSpatial | 2503.18470 | `meta_spatial` | `vision` |
| Search-R1 | 2503.09516 | `search_r1` | `searching` |
| AI-SearchPlanner | 2508.20368 | `ai_search_planner` | `searching` |
| Chain-of-Agents | 2508.13167 | `chain_of_agents` | `searching` |
| Search Self-play | 2510.18821 | `search_self_play` | `searching` |
| SCoRe | 2409.12917 | `self_correcting` | `multi_turn` |
| MinD | 2505.19788 | `mind` | `multi_turn` |
| EPO (strategic reasoning) | 2502.12486 | `epo_strategic` | `multi_turn` |
| EPO (entropy) | 2509.22576 | `epo` | `multi_turn` |
| ScalingInter-RL | 2509.08755 | `scaling_inter` | `multi_turn` |
| G-RA | 2508.10548 | `gated_reward_accumulation` | `multi_turn` |
| MARS | 2510.15414 | `mars` | `multi_turn` |
| BFS-Prover-V2 | 2509.06493 | `bfs_prover`, `ExpertIterationConfig` | `multi_turn`, `expert_iteration` |
| REFUEL | 2410.04612 | `refuel`, `refuel_online` | `pairwise` |
| REBEL | 2404.16767 | `rebel` | `pairwise` |
| DPO | 2305.18290 | `dpo` | `pairwise` |
| LMRL-Gym's baselines | 2311.18232 | `monte_carlo`, `online_filtered_cloning`, `ppo_with_imitation` | `lmrl_gym` |
| ILQL | 2206.11871 | `ilql` | `lmrl_gym` |
| ArCHer, CHAI | 2402.19446 | `archer`, `archer_offline`, `reinforce_offline`, `anchored_archer`, `chai` | `hierarchical` |
"""  # noqa: E501

from agentrl_jax.algorithms.methods.actor_critic import (
    bi_level_ppo,
    ppo,
    practitioners_ppo,
    practitioners_rloo,
    turn_ppo,
    ufo,
    ui_tars_2,
    vapo,
    vla_rl,
)
from agentrl_jax.algorithms.methods.code_use import (
    artist,
    datamind,
    mars_sql,
    r1_code_interpreter,
    retool,
)
from agentrl_jax.algorithms.methods.expert_iteration import ExpertIterationConfig
from agentrl_jax.algorithms.methods.group_relative import (
    cispo,
    dapo,
    dr_grpo,
    gigpo,
    grpo,
    gspo,
    reinforce_plus_plus,
    reinforce_plus_plus_with_baseline,
    rloo,
)
from agentrl_jax.algorithms.methods.gui import active_vln, arpo_gui, dart, ui_s1
from agentrl_jax.algorithms.methods.hierarchical import (
    anchored_archer,
    archer,
    archer_offline,
    chai,
    reinforce_offline,
)
from agentrl_jax.algorithms.methods.lmrl_gym import (
    ilql,
    monte_carlo,
    online_filtered_cloning,
    ppo_with_imitation,
)
from agentrl_jax.algorithms.methods.multi_turn import (
    bfs_prover,
    epo,
    epo_strategic,
    gated_reward_accumulation,
    mars,
    mind,
    scaling_inter,
    self_correcting,
)
from agentrl_jax.algorithms.methods.pairwise import dpo, rebel, refuel, refuel_online
from agentrl_jax.algorithms.methods.searching import (
    ai_search_planner,
    chain_of_agents,
    search_r1,
    search_self_play,
)
from agentrl_jax.algorithms.methods.tool_use import (
    aepo,
    arpo,
    igpo,
    inspo,
    simpletir,
    spear,
    supo,
    webagent_r1,
)
from agentrl_jax.algorithms.methods.ui_tars2 import FlywheelConfig
from agentrl_jax.algorithms.methods.vision import (
    codevision,
    framethinker,
    meta_spatial,
    mgpo,
    vigorl,
    vrag_rl,
)

__all__ = [
    "ExpertIterationConfig",
    "FlywheelConfig",
    "active_vln",
    "aepo",
    "ai_search_planner",
    "anchored_archer",
    "archer",
    "archer_offline",
    "arpo",
    "arpo_gui",
    "artist",
    "bfs_prover",
    "bi_level_ppo",
    "chai",
    "chain_of_agents",
    "cispo",
    "codevision",
    "dapo",
    "dart",
    "datamind",
    "dpo",
    "dr_grpo",
    "epo",
    "epo_strategic",
    "framethinker",
    "gated_reward_accumulation",
    "gigpo",
    "grpo",
    "gspo",
    "igpo",
    "ilql",
    "inspo",
    "mars",
    "mars_sql",
    "meta_spatial",
    "mgpo",
    "mind",
    "monte_carlo",
    "online_filtered_cloning",
    "ppo",
    "ppo_with_imitation",
    "practitioners_ppo",
    "practitioners_rloo",
    "r1_code_interpreter",
    "rebel",
    "refuel",
    "refuel_online",
    "reinforce_offline",
    "reinforce_plus_plus",
    "reinforce_plus_plus_with_baseline",
    "retool",
    "rloo",
    "scaling_inter",
    "search_r1",
    "search_self_play",
    "self_correcting",
    "simpletir",
    "spear",
    "supo",
    "turn_ppo",
    "ufo",
    "ui_s1",
    "ui_tars_2",
    "vapo",
    "vigorl",
    "vla_rl",
    "vrag_rl",
    "webagent_r1",
]
