"""`PageQuestions`: NDCG by table, pages by their pixels, search, crops and the reward's gate."""

import math

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.vision.images import COLORS, text_mask
from agentrl_jax.envs.vision.page_questions import PageQuestions, ndcg, turn_text
from agentrl_jax.envs.vision.pages import (
    HEIGHT,
    MAX_PAGES,
    PAGE_QUESTIONS,
    PAGES_OF_COMPANY,
    REGIONS,
    TOPICS,
    Library,
    company_name,
    render_slide,
)
from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import ImageReader

LIBRARY = Library()


def page_env(seed: int = 0, **options) -> PageQuestions:
    env = make("agentrl/PageQuestions-v0", options)
    assert isinstance(env, PageQuestions)
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize(
    ("relevances", "relevant", "value"),
    [
        ([1], 1, 1.0),
        ([0, 1], 1, 1 / math.log2(3)),
        ([1, 0, 1], 2, (1 + 0.5) / (1 + 1 / math.log2(3))),
        ([1, 1], 2, 1.0),
        ([0, 0], 2, 0.0),
        ([], 1, 0.0),
        ([1], 2, 1 / (1 + 1 / math.log2(3))),
        ([], 0, 0.0),
    ],
)
def test_ndcg_of_a_table(relevances, relevant, value):
    assert ndcg(relevances, relevant) == pytest.approx(value)


def test_a_library_of_some_forms():
    env = page_env(forms=("chart",), pages=60)
    assert {env.library.slide(number).form for number in range(60)} == {"chart"}
    page = next(n for n in range(60) if LIBRARY.slide(n).form == "table")
    assert env.library.slide(page).values == LIBRARY.slide(page).values
    with pytest.raises(UserError, match="forms must be one of table, chart, document"):
        page_env(forms=("poster",))


def test_pages_show_their_numbers():
    """The text of each number is at its place; bars are as high as their numbers."""
    forms = set()
    for number in range(30):
        slide = LIBRARY.slide(number)
        image = render_slide(slide)
        forms.add(slide.form)
        for i, value in enumerate(slide.values):
            x1, y1, x2, y2 = (round(v) for v in slide.box(i))
            part = (image[y1:y2, x1:x2] == 0).all(-1)
            mask = text_mask(str(value))
            windows = np.lib.stride_tricks.sliding_window_view(part, mask.shape)
            assert (windows == mask).all((2, 3)).any(), (slide, i)
            if slide.form == "chart":
                bar = (image == list(COLORS.values())[i]).all(-1)
                assert bar.any(1).sum() == round(180 * value / 1000)
                assert bar.any(1).nonzero()[0][-1] == HEIGHT - 41
    assert len(forms) == 3


def test_companies_have_different_names():
    names = {company_name(0, i) for i in range(MAX_PAGES // PAGES_OF_COMPANY)}
    assert len(names) == MAX_PAGES // PAGES_OF_COMPANY and company_name(1, 0) != company_name(0, 0)


@pytest.mark.parametrize("kind", PAGE_QUESTIONS.phrasings)
def test_answers_follow_from_the_pages(kind: str):
    split = "held_out" if kind in PAGE_QUESTIONS.held_out else "train"
    for seed in range(10):
        env = page_env(seed, kinds=[kind], split=split)
        slides = [LIBRARY.slide(number) for number in env.question.pages]
        text, answer = env.question.text, env.question.answer
        assert all(s.company in text and str(s.year) in text for s in slides)
        assert TOPICS[slides[0].topic] in text and slides[0].topic not in text
        if kind in ("most", "least"):
            best = max if kind == "most" else min
            assert slides[0].values[REGIONS.index(answer)] == best(slides[0].values)
            continue
        (region,) = [i for i, name in enumerate(REGIONS) if name in text]
        values = [slide.values[region] for slide in slides]
        if kind == "value":
            assert answer == str(values[0])
        if kind == "sum":
            assert answer == str(sum(values))
        if kind == "years":
            assert answer == str(slides[int(values[1] > values[0])].year)


@pytest.mark.parametrize("split", ["train", "test", "held_out"])
def test_the_expert_retrieves_the_pages_first_and_reads_them(split: str):
    for seed in range(40):
        turns = play_scripted_episode(page_env(split=split), "expert", seed).turns
        assert turns[-1].reward == pytest.approx(1.0) and turns[-1].info["evidence"] == 1
        assert turns[-1].info["rank"] == 1


def test_a_search_shows_the_best_page_that_was_not_shown():
    env = page_env()
    slide = LIBRARY.slide(17)
    query = f"{slide.company} {slide.topic} {slide.year}"
    for _ in range(2):
        env.step(turn_text("I search.", "search", query))
    assert env.retrieved[0] == 17 and len(set(env.retrieved)) == 2
    assert LIBRARY.slide(env.retrieved[1]).company == slide.company


def test_a_crop_is_cut_from_the_last_image_at_full_resolution():
    env = page_env()
    slide = LIBRARY.slide(3)
    env.step(turn_text("I search.", "search", f"{slide.company} {slide.topic} {slide.year}"))
    (reply,), *_ = env.step(turn_text("I look.", "bbox", "[12, 30, 60, 60]"))
    box = [round(x * 448 / 168) for x in (12, 30, 60, 60)]
    part = render_slide(slide)[box[1] - 4 : box[3] + 4, box[0] - 4 : box[2] + 4]
    pixels = ImageReader().pixels(reply.images[0])
    assert pixels.shape[1] == 168 and abs(pixels.mean() - part.mean()) < 2
    env.step(turn_text("I look again.", "bbox", "[0, 0, 84, 50]"))
    first, second = (view.box for _, view in env.looks)
    assert second[0] >= first[0] - 4 and second[2] < first[2]


@pytest.mark.parametrize(
    ("tag", "body", "message"),
    [
        ("bbox", "[0, 0, 500, 500]", "not within the image of 168x126"),
        ("bbox", "[-1, 0, 5, 5]", "not within"),
        ("bbox", "[9, 9, 1, 1]", "is empty"),
        ("bbox", "[NaN, 0, 5, 5]", "no coordinate"),
        ("bbox", "[0, 0, 1e999, 5]", "no coordinate"),
        ("bbox", "the table", "no list of numbers"),
        ("bbox", "[" * 5000, "no list of numbers"),
        ("bbox", "", "no list of numbers"),
        ("search", "", "No further page"),
        ("search", "zzz qqq", "No further page"),
        ("look", "x", "Invalid action"),
    ],
)
def test_hostile_actions_are_answered(tag, body, message):
    env = page_env()
    env.step(turn_text("I search.", "search", LIBRARY.slide(3).company))
    (reply,), reward, terminated, _, _ = env.step(turn_text("I try.", tag, body))
    assert message in reply.text and not reply.images and reward == 0 and not terminated


def test_a_box_before_a_search_is_told():
    (reply,), *_ = page_env().step(turn_text("I look.", "bbox", "[0, 0, 5, 5]"))
    assert "search for a page first" in reply.text


def test_an_answer_without_a_search_has_no_reward():
    env = page_env()
    *_, info = env.step(turn_text("I know.", "answer", env.question.answer))
    assert info["success"] and info["rewards"] == {"outcome": 0, "format": 0, "retrieval": 0}
    env = page_env(reward="outcome")
    _, reward, *_ = env.step(turn_text("I know.", "answer", env.question.answer))
    assert reward == 1


def test_the_parts_of_the_reward():
    """A needed page in the second place: .7 + .1 + .2 / log2(3)."""
    env = page_env(kinds=["value"])
    other = LIBRARY.slide((env.question.pages[0] + 50) % 600)
    for slide in (other, LIBRARY.slide(env.question.pages[0])):
        env.step(turn_text("a", "search", f"{slide.company} {slide.topic} {slide.year}"))
    _, reward, *_, info = env.step(turn_text("a", "answer", env.question.answer))
    assert reward == pytest.approx(0.8 + 0.2 / math.log2(3)) and info["rank"] == 2


def test_without_crops_a_box_is_no_action():
    env = page_env(crops=False)
    assert "bbox" not in env._opening[0].text
    env.step(turn_text("a", "search", LIBRARY.slide(3).company))
    (reply,), *_ = env.step(turn_text("a", "bbox", "[0, 0, 5, 5]"))
    assert "Invalid action" in reply.text
