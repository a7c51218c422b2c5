"""Let another model compare the answers of fine-tuned arms with those before fine-tuning.

Reads the metrics.json of every arm and the predictions.jsonl beside it. Asks an endpoint with OpenAI's protocol about
a sample of the test rows, in both orders. Its answers are kept in a folder, by the content of the request: whatever
happens, none is paid for twice. The key comes from the environment. Writes a table with a row for each arm, and one
with every verdict, where a person can add their own.
"""

import argparse
import json
import logging
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from reprolora.answer_store import AnswerStore
from reprolora.arms import KEY, read_predictions
from reprolora.chat_endpoint import ChatEndpoint, in_parallel
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.judging import judge_pair, label_of, read_labels, sample_pairs, summarize

# The texts of a row, and what a person fills in, before what the judge said.
ROW = ["id", "document", "instruction", "input", "reference", "before", "after", "label"]
TABLE = ["judge", "n", "wins", "ties", "losses", "unjudged", "inconsistent", "win_rate", "win_rate_low"]
TABLE = [*KEY, *TABLE, "win_rate_high", "labelled", "agreement", "kappa"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--labels", type=Path, help="verdicts of a person (CSV)")
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"judge", "before"}')
    parser.add_argument("--answers", type=Path, required=True, help="the folder of the judge's answers")
    parser.add_argument("--table", type=Path, required=True, help="the table of arms to write (CSV)")
    parser.add_argument("--verdicts", type=Path, required=True, help="the table of verdicts to write (CSV)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    judge = args.settings["judge"]
    labels = read_labels(args.labels) if args.labels else {}
    arms = [read_predictions(file) for file in args.metrics]
    pairs = sample_pairs(arms, args.settings["before"], judge["rows"], judge["seed"])
    endpoint = ChatEndpoint(judge, "answers.judge", AnswerStore(args.answers))
    judgements = in_parallel(lambda pair: judge_pair(pair, endpoint), pairs, judge["parallel"])
    judged = list(zip(pairs, tqdm(judgements, total=len(pairs), unit=" pairs", disable=None), strict=True))
    logging.info("the judge's answers so far: %s", endpoint.spent())
    table = pd.DataFrame(summarize(judged, labels, judge["model"]), columns=TABLE)
    verdicts = [
        {name: pair.row[name] for name in ("id", "document", "instruction", "input", "reference")}
        | {"before": pair.before, "after": pair.after, "label": label_of(pair, labels)}
        | {key: pair.arm[key] for key in KEY}
        | {"verdict": judgement.verdict, "before_first": judgement.before_first, "after_first": judgement.after_first}
        | {"reason": judgement.reason}
        for pair, judgement in judged
    ]
    columns = [*ROW, *KEY, "verdict", "before_first", "after_first", "reason"]
    write_text(args.table, table.to_csv(index=False, lineterminator="\n"))
    write_text(args.verdicts, pd.DataFrame(verdicts, columns=columns).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)
