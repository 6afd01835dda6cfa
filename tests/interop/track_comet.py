#!/usr/bin/env python3
"""track_comet.py PROGRAM: trains with PROGRAM (tracked.cpp) into Comet, and has Comet's own package read it.

Offline archives are read by `comet offline`, checked against the package's schemas, compared with an archive
that the package itself writes, and sent by `comet upload` to a server of this script. Online, what the program
sends to that server is compared with what the package sends."""

import os
import sys
import time

from checks import check, same
from comet_offline import (
    failed_is_said,
    killed_is_rescued,
    offline_matches_the_package,
    resumed_continues_the_experiment,
    terminated_is_whole,
)
from comet_online import (
    ONLINE,
    a_key_that_is_given,
    a_refused_value_costs_no_other,
    a_server_with_a_certificate_of_its_own,
    bad_servers_cost_nothing,
    failed_and_resumed_online,
    killed_online,
    online_is_what_the_package_sends,
    restarted_in_the_middle,
    terminated_online,
    wrong_key,
)
from comet_samples import samples_offline, samples_online
from comet_tools import HERE, Archive, Folder


def trials_are_experiments_of_a_search():
    folder, seen = Folder(), {}
    for name, rate in (("run-0", "0.1"), ("run-1", "0.2")):
        reported = folder.train("--output_dir", f"{folder.path}/search/{name}", "--trial", name, "--learning_rate", rate, COMET_MODE="offline")
        (path,) = set(folder.archives()) - {archive.path for archive in seen.values()}
        archive = Archive(path)
        archive.path = path
        archive.validate()
        same(archive.points(), reported.points(), "metrics")
        others = {other["key"]: other["value"] for other in archive.of("log_other")}
        same((others["Name"], others["Search"]), (name, "search"), "names")
        given = {message["param"]["paramName"]: message["param"]["paramValue"] for message in archive.of("parameter_msg") if "param" in message}
        same((given["trial|learning_rate"], given["trial|width"]), (float(rate), 4), "hyperparameters")
        seen[archive.experiment["offline_id"]] = archive
    same(len(seen), 2, "experiments")


def wrong_variables():
    for variables, expected in (
        (dict(COMET_MODE="often"), "'often': must be get_or_create, create or get"),
        (dict(COMET_MODE="get"), "needs experiment_key"),
        (dict(COMET_EXPERIMENT_KEY="short"), "32 to 50 letters and digits"),
        (dict(COMET_START_ONLINE="maybe"), "COMET_START_ONLINE is 'maybe'"),
        (dict(COMET_START_ONLINE="1"), "set COMET_API_KEY"),
        (dict(COMET_URL_OVERRIDE="ftp://server", **ONLINE), "COMET_URL_OVERRIDE"),
        (dict(COMET_OFFLINE_DIRECTORY="/proc/none"), "/proc/none can't be created"),
    ):
        reported = Folder().train(code=3, **variables)
        check(expected in reported.out, f"{variables}: {reported.out}")
    folder = Folder()
    reported = folder.train(COMET_MODE="DISABLED")
    check("belongs to an earlier version" in reported.err and not os.path.exists(folder.path + "/archives"), reported.err)
    reported = folder.train(COMET_MODE="OFFLINE", **ONLINE)
    check("belongs to an earlier version" in reported.err and len(folder.archives()) == 1, reported.err)


CASES = [
    offline_matches_the_package,
    resumed_continues_the_experiment,
    failed_is_said,
    terminated_is_whole,
    killed_is_rescued,
    online_is_what_the_package_sends,
    failed_and_resumed_online,
    a_key_that_is_given,
    a_refused_value_costs_no_other,
    a_server_with_a_certificate_of_its_own,
    wrong_key,
    bad_servers_cost_nothing,
    restarted_in_the_middle,
    killed_online,
    terminated_online,
    trials_are_experiments_of_a_search,
    wrong_variables,
    samples_offline,
    samples_online,
]

if __name__ == "__main__":
    wanted = sys.argv[2:]
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        begun = time.time()
        case()
        print(f"{case.__name__}: {time.time() - begun:.1f} s", flush=True)
    HERE.cleanup()
