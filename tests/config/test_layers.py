"""Flags over environment over ralph.toml over the user's file over defaults, each value with its origin."""

import pytest

from ralphd.config.configuration import load
from ralphd.config.keys import keys_of
from ralphd.config.layers import from_text
from ralphd.core.delivery import Destination, ProjectsDestination
from tests.config.conftest import Place


def test_without_any_layer_every_value_is_its_default(place: Place) -> None:
    configuration = place.load()

    assert configuration.regent.max_retries == 3
    assert configuration.regent.retry_backoff_seconds == 30
    assert configuration.regent.hang_timeout_seconds == 300
    assert configuration.ralph.restart == "on-failure"
    assert configuration.agents.primary == "claude"
    assert configuration.agents.timeout_seconds == 600
    assert configuration.agents.iteration_timeout_seconds == 900
    assert configuration.retry.jitter == 0.1
    assert configuration.logs.run_bytes == 67108864
    assert configuration.logs.total_bytes == 2147483648
    assert configuration.webhooks == ()


def test_each_layer_lies_over_the_next(place: Place) -> None:
    keys = [
        "max_retries",
        "healthy_after_seconds",
        "max_restarts_per_hour",
        "test_retries",
        "evidence_io_bytes",
    ]

    def section(value: int, names: list[str]) -> str:
        return "[regent]\n" + "".join(f"{name} = {value}\n" for name in names)

    place.user(section(1, keys[:4]))
    place.project(section(2, keys[:3]))
    environ = {f"RALPH_REGENT_{name.upper()}": "4" for name in keys[:2]}
    configuration = place.load(environ, {"regent.max_retries": 5})

    assert [getattr(configuration.regent, name) for name in keys] == [5, 4, 2, 1, 4096]


def test_each_value_tells_where_it_came_from(place: Place) -> None:
    user = place.user("[logs]\nrun_bytes = 2000000\n")
    place.project("# mine\n[regent]\nmax_retries = 5\n")
    environ = {"RALPH_PHASES_PHASE_3_RETRY_COUNT": "1"}
    origins = place.load(environ, {"max-iterations": 4, "regent.enabled": False}).origins

    assert origins["logs.run_bytes"].text == f"{user}:2"
    assert origins["regent.max_retries"].text == "ralph.toml:3"
    assert origins["phases.phase_3_retry_count"].text == "environment RALPH_PHASES_PHASE_3_RETRY_COUNT"
    assert origins["ralph.max_iterations"].text == "flag --max-iterations"
    assert origins["regent.enabled"].text == "request regent.enabled"
    assert origins["git.repair"].text == "default"
    assert origins["project.name"].text == "the directory's name"


def test_the_name_is_the_directorys_made_fit_or_what_was_given_made_fit(place: Place) -> None:
    assert place.load().project.name == "my-project"
    place.project('[project]\nname = "Ünser Großes Projekt!"\n')
    assert place.load().project.name == "unser-groes-projekt"
    assert place.load(flags={"--name": "other"}).project.name == "other"


def test_a_flag_that_was_not_given_is_none_and_changes_nothing(place: Place) -> None:
    place.project("[ralph]\nmax_iterations = 7\n")
    assert place.load(flags={"max_iterations": None}).ralph.max_iterations == 7


@pytest.mark.parametrize(
    ("section", "name", "text", "value"),
    [
        ("regent", "enabled", " Off ", False),
        ("regent", "enabled", "maybe", "maybe"),
        ("regent", "max_retries", "12", 12),
        ("regent", "max_retries", "1.5", "1.5"),
        ("retry", "jitter", "0.5", 0.5),
        ("ralph", "command", "./loop.sh 'two words'", ["./loop.sh", "two words"]),
        ("ralph", "command", '["./loop.sh", "two words"]', ["./loop.sh", "two words"]),
        ("ralph", "command", "./loop.sh 'open", "./loop.sh 'open"),
        ("agents", "fallback", "codex, gemini", ["codex", "gemini"]),
        ("agents.NAME", "env", '{ KEY = "value" }', {"KEY": "value"}),
        ("regent", "test_command", "make test && echo [ok]", "make test && echo [ok]"),
    ],
)
def test_text_is_read_as_the_type_of_its_key_and_stays_text_when_it_is_not(
    section: str, name: str, text: str, value: object
) -> None:
    assert from_text(keys_of(section)[name], text) == value


def test_a_variable_can_name_an_agent(place: Place) -> None:
    configuration = place.load(
        {"RALPH_AGENTS_MY_AGENT_COMMAND": "run-it --now", "RALPH_AGENTS_CLAUDE_MODEL": "opus"}
    )
    assert configuration.agents.named["my_agent"].command == ("run-it", "--now")
    assert configuration.agents.named["claude"].model == "opus"


def test_variables_of_a_foreign_command_are_let_be_and_misspelt_ones_are_told(place: Place) -> None:
    foreign = {
        "RALPH_RUN_ID": "r000001-aaaaaaaa",
        "RALPH_HOME": "x",
        "RALPH_PROJECT_ROOT": "/x",
        "RALPH_LOGS_DIR": "x",
    }
    assert place.load(foreign) == place.load()
    assert place.faults({"RALPH_REGENT_MAX_RETIRES": "1", "RALPH_WEBHOOKS_URL": "https://x.example"}) == [
        "environment RALPH_REGENT_MAX_RETIRES: unknown key, did you mean RALPH_REGENT_MAX_RETRIES?",
        "environment RALPH_WEBHOOKS_URL: webhooks are lists of tables; set them in a file",
    ]


def test_webhooks_of_both_files_are_told_and_a_project_can_change_one_but_not_open_private_addresses(
    place: Place,
) -> None:
    place.user(
        '[[webhooks]]\nurl = "https://a.example/x"\n'
        '[[webhooks]]\nurl = "http://127.0.0.1:1"\nallow_private = true\nsecret_file = "~/s"\n'
    )
    place.project(
        '[[webhooks]]\nurl = "http://127.0.0.1:1"\non = ["*"]\nsecret_file = "secret"\n'
        '[[webhooks]]\nurl = "https://b.example"\nsecret_env = "TOKEN"\n'
    )
    (place.directory / "secret").write_text("whsec_aGk=\n")
    configuration = place.load()
    first, second, third = configuration.destinations()
    pinned = type(configuration).from_pinned(configuration.pinned()).destinations()
    expected = [Destination, ProjectsDestination, ProjectsDestination]
    assert [*map(type, (first, second, third))] == [*map(type, pinned)] == expected

    assert (first.url, first.on, first.allow_private) == ("https://a.example/x", ("ralph.escalated",), False)
    assert (second.url, second.on, second.allow_private) == ("http://127.0.0.1:1", ("*",), True)
    assert second.secret_file == str(place.directory / "secret")
    assert (third.secret_env, third.secret_file) == ("TOKEN", None)
    assert configuration.origins["webhooks[2]"].text == "ralph.toml:5"


@pytest.mark.parametrize("named", ["own.toml", "~/demo/own.toml", "/etc/own.toml"])
def test_a_file_of_patterns_is_named_from_the_file_that_names_it(named: str, place: Place) -> None:
    place.project(f'[agents.claude]\npatterns = "{named}"\n')
    path = place.directory / "own.toml" if named.startswith("own") else named.replace("~", str(place.home))
    configuration = place.load()
    assert configuration.agents.named["claude"].patterns == str(path)
    assert type(configuration).from_pinned(configuration.pinned()) == configuration


def test_a_project_that_names_no_secret_does_not_unsign_the_users_webhook(place: Place) -> None:
    place.user('[[webhooks]]\nurl = "https://a.example/"\nsecret_file = "~/keys/hook"\n')
    place.project('[[webhooks]]\nurl = "https://a.example/"\non = ["ralph.*"]\n')
    (hook,) = place.load().destinations()
    assert hook.secret_file == str(place.home / "keys/hook")
    assert hook.on == ("ralph.*",)


def test_without_a_directory_only_the_users_file_and_the_environment_count(place: Place) -> None:
    place.user("[regent]\nstop_deadline_seconds = 5\n")
    configuration = load(None, environ={"HOME": str(place.home), "RALPH_REGENT_ENABLED": "no"})
    assert configuration.regent.stop_deadline_seconds == 5
    assert configuration.regent.enabled is False


def test_a_project_signs_with_nothing_but_a_secret(place: Place) -> None:
    place.project('[[webhooks]]\nurl = "https://b.example"\nsecret_file = "~/.pgpass"\n')
    secret = place.home / ".pgpass"
    fault = f"ralph.toml:1: webhooks.secret_file: {secret} has to hold a secret of the form whsec_…"
    assert place.load().destinations()[0].secret_file == str(secret)
    secret.write_text("localhost:5432:db:me:hunter2\n")
    assert place.faults() == [fault]
    secret.unlink()
    secret.symlink_to("/etc/hostname")
    assert place.faults() == [fault]
    place.project("")
    place.user('[[webhooks]]\nurl = "https://b.example"\nsecret_file = "~/.pgpass"\n')
    assert place.load().destinations()[0].secret_file == str(secret)
