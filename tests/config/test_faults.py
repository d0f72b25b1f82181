"""All faults at once, each with file, line, key, and what would be right."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.config.files import layer
from tests.config.conftest import Place


def test_all_faults_of_all_layers_are_told_together(place: Place) -> None:
    user = place.user("[retry]\njitter = 3\n")
    place.project(
        """# a comment
max_retries = 3
[regent]
max_retires = 4
stop_timeout_seconds = -1
enabled = "yes"
[ralph]
mode = "lop"
max_retries = 1
[regnet]
x = 1
[agents.claude]
model = 3
[agents.Claude]
"""
    )
    assert place.faults(
        {"RALPH_PHASES_ENABLED": "perhaps"}, {"--max-iterations": "many", "max-itrations": 1}
    ) == [
        f"{user}:2: retry.jitter: has to be a number from 0 to 1, is 3",
        "ralph.toml:2: max_retries: unknown key, it belongs in [regent]",
        "ralph.toml:4: regent.max_retires: unknown key, did you mean max_retries?",
        "ralph.toml:5: regent.stop_timeout_seconds: has to be a number from 0 to 31536000, is -1",
        'ralph.toml:6: regent.enabled: has to be true or false, is "yes"',
        'ralph.toml:8: ralph.mode: has to be one of "loop", "iteration", is "lop"',
        "ralph.toml:9: ralph.max_retries: unknown key, it belongs in [regent]",
        "ralph.toml:10: regnet: unknown section, did you mean regent?",
        "ralph.toml:13: agents.claude.model: has to be a string, is 3",
        "ralph.toml:14: agents.Claude: an agent's name is of lower case letters, digits, '-' and '_'",
        'environment RALPH_PHASES_ENABLED: phases.enabled: has to be true or false, is "perhaps"',
        'flag --max-iterations: ralph.max_iterations: has to be a whole number from 0 to 1000000, is "many"',
        "request max-itrations: unknown key, did you mean max-iterations?",
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("regent.max_retries = 1.0", "has to be a whole number from 0 to 1000000, is 1.0"),
        ("regent.max_retries = true", "has to be a whole number from 0 to 1000000, is true"),
        ("regent.retry_backoff_factor = 0.5", "has to be a number from 1 to 100, is 0.5"),
        ("retry.jitter = nan", "has to be a number from 0 to 1, is NaN"),
        ("retry.base_seconds = inf", "has to be a number from 0 to 31536000, is Infinity"),
        ("retry.base_seconds = 1979-05-27", 'has to be a number from 0 to 31536000, is "1979-05-27"'),
        ('landing.target = "a..b"', 'has to be the name of a branch, such as main, is "a..b"'),
        ('ralph.command = "./loop.sh"', 'has to be a list of strings, is "./loop.sh"'),
        ('agents.fallback = ["codex", 3]', 'has to be a list of non-empty strings, is ["codex", 3]'),
        ('ralph.prompt_file = ""', 'has to be a non-empty string, is ""'),
        ('ralph.tasks = "a\\u0000b"', "cannot hold a NUL character"),
        ('git.repair = "magic"', 'has to be one of "tell", "abort", is "magic"'),
        ("agents.claude.env = { KEY = 1 }", "has to be a table of strings"),
        ('agents.claude.env = ["KEY=s3cret"]', "has to be a table of strings"),
        ('agents.claude.env = "KEY=s3cret"', "has to be a table of strings"),
        ('agents.claude.env = { "A=B" = "x" }', "'A=B' cannot be the name of a variable"),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_range(place: Place, line: str, text: str) -> None:
    place.project(line + "\n")
    assert place.faults() == [f"ralph.toml:1: {line.split(' =')[0]}: {text}"]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ('url = "ftp://example.com"', "webhooks[0].url: has to be an http or https URL"),
        ('url = "https://"', "webhooks[0].url: has to be an http or https URL"),
        ('url = "https://x:99999/"', "webhooks[0].url: is not a URL: Port out of range 0-65535"),
        (
            'url = "https://me:pw@x/"',
            "webhooks[0].url: must not contain a password, since it is stored; use secret_file",
        ),
        (
            'url = "https://x/"\non = ["ralph.escalatd"]',
            "webhooks[0].on: 'ralph.escalatd' matches no event, did you mean ralph.escalated?",
        ),
        (
            'url = "https://x/"\nallow_private = true',
            "webhooks[0].allow_private: can only be set in the user's own file, ralph/config.toml",
        ),
        ('on = ["*"]', "webhooks[0]: has no url"),
        (
            'url = "https://x/"\nsecret_file = "a"\nsecret_env = "B"',
            "webhooks[0]: has both secret_file and secret_env; keep one",
        ),
    ],
)
def test_a_webhook_that_cannot_work_is_a_fault(place: Place, entry: str, text: str) -> None:
    place.project(f"[[webhooks]]\n{entry}\n")
    line = 2 + entry.count("\n") if "]." in text else 1
    assert place.faults() == [f"ralph.toml:{line}: {text}"]


def test_the_same_address_twice_in_one_file_is_a_fault(place: Place) -> None:
    place.project('[[webhooks]]\nurl = "https://x/"\n[[webhooks]]\nurl = "https://x/"\n')
    assert place.faults() == ["ralph.toml:4: webhooks[1].url: is there twice; put all its events in one `on`"]


def test_sections_of_the_wrong_shape_are_faults_that_show_the_right_one(place: Place) -> None:
    place.project('regent = 3\n[webhooks]\nurl = "https://x/"\n')
    assert place.faults() == [
        "ralph.toml:1: regent: has to be a section: write [regent] on a line of its own",
        "ralph.toml:2: webhooks: has to be a list of tables: write [[webhooks]] above each",
    ]


def test_log_sizes_are_the_users_to_set_and_nobody_elses(place: Place) -> None:
    place.project("[logs]\nrun_bytes = 2000000\n")
    refused = "logs.run_bytes: can only be set in the user's own file, ralph/config.toml"
    assert place.faults({"RALPH_LOGS_RUN_BYTES": "2000000"}, {"logs.run_bytes": 2000000}) == [
        f"ralph.toml:2: {refused}",
        f"environment RALPH_LOGS_RUN_BYTES: {refused}",
        f"request logs.run_bytes: {refused}",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\nb 2\n", "ralph.toml:2: is not TOML: Expected '=' after a key in a key/value pair"),
        ("a = [1,\n", "ralph.toml:2: is not TOML: "),
        ("a = " + "9" * 5000, "ralph.toml: is not TOML: "),
        ("a = " + "[" * 20000, "ralph.toml: is nested too deeply"),
    ],
)
def test_text_that_is_no_toml_is_told_with_its_line(place: Place, text: str, told: str) -> None:
    place.project(text)
    assert place.faults()[0].startswith(told)


def test_a_key_with_control_sequences_is_shown_harmlessly(place: Place) -> None:
    place.project('[regent]\n"\\u001b[2Jx" = 1\n')
    assert place.faults() == ["ralph.toml:2: regent.\\x1b[2Jx: unknown key"]


FRAGMENTS = [
    "[",
    "]",
    "[[webhooks]]",
    "[regent]",
    "[agents.a]",
    "\n",
    "=",
    " = ",
    "a",
    "url",
    "max_retries",
    '"',
    "1",
]


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=30).map("".join))
def test_no_text_whatever_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_text(text, errors="surrogatepass", newline="")
    path.chmod(0o644)
    for fault in layer(path, None, path.parent, users_own=False).faults:
        assert str(fault).isprintable()


@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "max_retries = {{ {} = 1 }}", '"a" . {} = 1'])
def test_a_key_of_thousands_of_dots_is_refused_before_it_takes_minutes(place: Place, line: str) -> None:
    place.project("[regent]\n" + line.format("a" + ".a" * 20_000) + "\n")
    assert place.faults() == ["ralph.toml:2: has a key of more than 32 dots"]


def test_a_text_with_many_dots_is_no_such_key(place: Place) -> None:
    place.project('[regent]\ntest_command = "' + "make test. " * 40 + '"\n')
    assert place.load().regent.test_command.startswith("make test.")


def test_ralph_toml_raises_the_sandbox_and_never_lowers_it(place: Place) -> None:
    place.project('[sandbox]\nlevel = "none"\n')
    text = 'cannot be lower than "auto" here; lower it in the user\'s own file, ralph/config.toml'
    assert place.faults() == [f"ralph.toml:2: sandbox.level: {text}"]
    place.user('[sandbox]\nlevel = "none"\n')
    assert place.load().sandbox.level == "none"
    place.project('[sandbox]\nlevel = "signals"\n')
    assert place.load().sandbox.level == "signals"
    assert place.load({"RALPH_SANDBOX_LEVEL": "none"}).sandbox.level == "none"  # of the person who starts it


def test_ralph_toml_cuts_the_box_off_and_opens_nothing(place: Place) -> None:
    place.project('[sandbox]\nnet = false\nwritable = ["/etc"]\nproxy = "http://p:1"\n')
    text = "can only be set in the user's own file, ralph/config.toml"
    assert place.faults() == [
        f"ralph.toml:3: sandbox.writable: {text}",
        f"ralph.toml:4: sandbox.proxy: {text}",
    ]
    place.project("[sandbox]\nnet = false\n")
    assert not place.load().sandbox.net
    place.user("[sandbox]\nnet = false\n")
    place.project("[sandbox]\nnet = true\n")
    assert place.faults() == ["ralph.toml:2: sandbox.net: the user's own file sets it to false"]


@pytest.mark.parametrize("path", ["~", "~/", "/", "//", "cache", "./cache", "~other/x"])
def test_a_writable_path_is_absolute_and_less_than_everything(place: Place, path: str) -> None:
    place.user(f'[sandbox]\nwritable = ["{path}"]\n')
    assert "has to begin with '/' or '~/'" in place.faults()[0]
