"""`bert-tfx submit` with a local stand-in of the API: requests, and messages of refusals."""

import contextlib
import http.server
import io
import json
import sys
import threading

import pytest
import yaml

from pipeline.cli import main
from tests.support.pipeline.compiled_for_kubeflow import compiled

TOKEN, PASSWORD = "planted-api-token", "planted-metadata-password"
SHORT_GRAPH = {"CorpusGen": (), "Trainer": ("CorpusGen",)}


class Api(http.server.ThreadingHTTPServer):
    """Answers like Kubeflow Pipelines and Vertex AI, and records the requests.

    Attributes:
        asked: method, path without query, `authorization` and body of each request.
        status: status of the answers to POST; with `refuse_all`, to all requests.
        body: body of a refusal, in place of the API's own.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.status, self.refuse_all, self.body = [], 200, False, None
        self.experiments = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def posted(self, path):
        return [body for method, asked, _, body in self.asked if (method, asked) == ("POST", path)]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/apis/v2beta1/experiments"):
            self.answer({"experiments": list(self.server.experiments.values())})
        else:
            self.answer({"multi_user": False})

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(text)
        if self.path.endswith("/experiments"):
            made = self.server.experiments[body["display_name"]] = {"experiment_id": "e-1", **body}
            self.answer(made, body)
        elif "/pipelineJobs" in self.path:
            self.answer({"name": "projects/7/locations/europe-west4/pipelineJobs/bert-pretrain-1"}, body)
        else:
            self.answer({"run_id": "r-1", **body}, body)

    def answer(self, made, body=None):
        api = self.server
        api.asked.append((self.command, self.path.partition("?")[0], self.headers.get("authorization"), body))
        refused = api.refuse_all or (api.status != 200 and body is not None)
        if refused:
            said = {"code": api.status, "message": "what\nit says"}
            made = {"error": said} if "pipelineJobs" in self.path else {**said, "error": "what\nit says", "details": []}
        text = (api.body if refused and api.body is not None else json.dumps(made)).encode()
        self.send_response(api.status if refused else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


@pytest.fixture
def api(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))  # the client writes a file there
    monkeypatch.setenv("BERT_TFX_API_TOKEN", TOKEN)
    monkeypatch.setenv("BERT_TFX_METADATA_PASSWORD", PASSWORD)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Api()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def cluster_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "pipeline.yaml"
    compiled(path, graph=SHORT_GRAPH, password_secret="metadata/password")
    return path


@pytest.fixture(scope="module")
def vertex_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vertex") / "pipeline.yaml"
    compiled(path, graph=SHORT_GRAPH, bucket="my-bucket", request={"metadata": "grpc://10.0.0.2:8080"})
    return path


def submit(*words):
    """Exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["bert-tfx", "submit", *map(str, words)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    assert TOKEN not in out.getvalue() + err.getvalue()
    return code, out.getvalue(), err.getvalue()


def test_a_cluster_is_sent_the_file_the_parameters_and_the_names(api, cluster_file, tmp_path):
    given = ["--parameter", "num_train_steps=7", "--parameter", 'corpus=["/runs/text"]']
    names = ["--run-name", "nightly", "--experiment", "BERT", "--namespace", "nlp", "--service-account", "trainer"]
    code, out, err = submit(cluster_file, "--host", api.url + "/", *given, *names)
    assert (code, err) == (0, "")
    assert out == f"run 'nightly': {api.url}/#/runs/details/r-1\n"
    (experiment,) = api.posted("/apis/v2beta1/experiments")
    assert experiment == {"display_name": "BERT", "namespace": "nlp"}
    (run,) = api.posted("/apis/v2beta1/runs")
    spec, platform = yaml.safe_load_all(cluster_file.read_text())
    assert run["pipeline_spec"] == {"pipeline_spec": spec, "platform_spec": platform}
    assert run["runtime_config"]["parameters"] == {"num_train_steps": 7, "corpus": ["/runs/text"]}
    assert (run["display_name"], run["experiment_id"], run["service_account"]) == ("nightly", "e-1", "trainer")
    assert {asked[2] for asked in api.asked} == {f"Bearer {TOKEN}"}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN in path.read_text()]
    assert PASSWORD not in json.dumps(api.asked) and TOKEN not in json.dumps([asked[3] for asked in api.asked])


def test_an_existing_experiment_is_used(api, cluster_file):
    api.experiments["Default"] = {"experiment_id": "e-9", "display_name": "Default"}
    assert submit(cluster_file, "--host", api.url)[0] == 0
    assert not api.posted("/apis/v2beta1/experiments")
    (run,) = api.posted("/apis/v2beta1/runs")
    assert run["experiment_id"] == "e-9"
    assert run["display_name"].startswith("bert-pretrain 20")


def test_without_a_token_none_is_sent(api, cluster_file, monkeypatch):
    monkeypatch.delenv("BERT_TFX_API_TOKEN")
    assert submit(cluster_file, "--host", api.url)[0] == 0
    assert {asked[2] for asked in api.asked} == {None}


VERTEX = ["--vertex", "--project", "my-project", "--region", "europe-west4", "--bucket", "my-bucket"]


def test_vertex_is_sent_the_file_the_parameters_and_the_names(api, vertex_file):
    given = ["--parameter", "num_train_steps=7", "--run-name", "nightly", "--service-account", "trainer@my-project"]
    code, out, err = submit(vertex_file, *VERTEX, "--host", api.url, *given)
    assert (code, err) == (0, "")
    place = "https://console.cloud.google.com/vertex-ai/pipelines/locations/europe-west4/runs/bert-pretrain-1"
    assert out == f"run 'nightly': {place}?project=my-project\n"
    ((_, path, authorization, job),) = api.asked
    assert path == "/v1/projects/my-project/locations/europe-west4/pipelineJobs"
    assert authorization == f"Bearer {TOKEN}"
    (spec,) = yaml.safe_load_all(vertex_file.read_text())
    assert job["pipelineSpec"] == spec
    assert job["runtimeConfig"] == {
        "gcsOutputDirectory": "gs://my-bucket/bert-pretrain/steps",
        "parameterValues": {"num_train_steps": 7},
    }
    assert (job["displayName"], job["serviceAccount"]) == ("nightly", "trainer@my-project")


def test_vertex_cannot_mount_a_volume(api, cluster_file):
    code, _, err = submit(cluster_file, *VERTEX, "--host", api.url)
    assert code == 2 and "mounts a volume of Kubernetes; compile it with --bucket for Vertex AI" in err
    assert not api.asked


REFUSALS = [
    (401, 2, "set BERT_TFX_API_TOKEN to a valid token"),
    (403, 2, "the token, or the service account, lacks the permission"),
    (404, 2, "is it the URL of Kubeflow Pipelines' API, the right project, the right region?"),
    (500, 1, ": 500 Internal"),
]


@pytest.mark.parametrize(("status", "code", "message"), REFUSALS)
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_cluster_s_refusal_is_one_line(api, cluster_file, status, code, message, everywhere):
    api.status, api.refuse_all = status, everywhere
    _refused_in_one_line(api, submit(cluster_file, "--host", api.url), status, code, message)


@pytest.mark.parametrize(("status", "code", "message"), REFUSALS)
def test_vertex_s_refusal_is_one_line(api, vertex_file, status, code, message):
    api.status = status
    _refused_in_one_line(api, submit(vertex_file, *VERTEX, "--host", api.url), status, code, message)


def test_a_proxy_s_page_is_not_quoted(api, cluster_file):
    api.status, api.refuse_all, api.body = 403, True, "<html>Sign in</html>"
    result = submit(cluster_file, "--host", api.url)
    _refused_in_one_line(api, result, 403, 2, "403 Forbidden; the token, or the service account, lacks the permission")


def _refused_in_one_line(api, result, status, code, message):
    exit_code, out, err = result
    assert exit_code == code
    assert err.startswith(f"bert-tfx: {api.url}: {status} ") and message in err
    # Google's client does not report the answer to a token that it cannot renew.
    assert "what it says" in err or api.body is not None or status == 401
    assert len(err.splitlines()) == 1 and out == ""


def test_an_unreachable_host_is_one_line(api, cluster_file, vertex_file):
    api.shutdown()
    api.server_close()
    for words in ([cluster_file], [vertex_file, *VERTEX]):
        code, _, err = submit(*words, "--host", api.url)
        assert code == 1
        assert err == f"bert-tfx: {api.url}: cannot be reached: [Errno 111] Connection refused\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --host URL of Kubeflow Pipelines, or --vertex"),
        (["--vertex", "--project", "p"], "--vertex: give --project, --region and --bucket"),
        (["--host", "kubeflow.example.org"], "--host kubeflow.example.org: give a URL, such as https://"),
        (["--host", "http://kubeflow.example.org"], "refused to send the token in the clear; give an https:// URL"),
        (["--host", f"https://me:{TOKEN}@example.org"], "it holds credentials; give a token in the environment"),
        (["--host", "http://localhost:1", "--parameter", "steps=1"], "steps is not a parameter of"),
    ],
)
def test_bad_options_are_one_line(api, cluster_file, words, message):
    code, _, err = submit(cluster_file, *words)
    assert code == 2
    assert message in err and len(err.splitlines()) == 1
