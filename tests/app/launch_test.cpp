// The launcher: what it makes of its options, and what becomes of real workers under real mpirun.

#include "app/launch/launch.hpp"

#include <csignal>
#include <cstdlib>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"
#include "convoy/base/units.hpp"
#include "convoy/base/version.hpp"

#include "app/launch/hosts.hpp"
#include "app/launch/mpirun.hpp"
#include "app/launch/noise.hpp"
#include "app/launch/preflight.hpp"
#include "app/launch/process.hpp"
#include "tests/app/program.hpp"

namespace convoy::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

template <typename Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "not refused";
}

// ---- Hosts
// ---------------------------------------------------------------------------------------

TEST(LaunchHosts, AreReadWithTheirSlots) {
  EXPECT_THAT(parse_hosts("a:2,b-1.lab,10.0.0.7:3,[fd00::2]:4,[::1]"),
              ElementsAre(Host{"a", 2}, Host{"b-1.lab", 1}, Host{"10.0.0.7", 3}, Host{"fd00::2", 4},
                          Host{"::1", 1}));
}

TEST(LaunchHosts, ThatAreWrittenWronglyAreRefusedWithTheEntry) {
  const auto refused = [](const std::string& text) {
    return refusal_of([&] { parse_hosts(text); });
  };
  EXPECT_THAT(refused(""), HasSubstr("--hosts is empty"));
  EXPECT_THAT(refused("a:2,,b"), HasSubstr("entry 2 of 'a:2,,b' is empty"));
  EXPECT_THAT(refused("a,"), HasSubstr("entry 2 of 'a,' is empty"));
  EXPECT_THAT(refused("a:0"), AllOf(HasSubstr("'a:0'"), HasSubstr("1 to 4096, not '0'")));
  EXPECT_THAT(refused("a:two"), HasSubstr("not 'two'"));
  EXPECT_THAT(refused("a:2x"), HasSubstr("not '2x'"));
  EXPECT_THAT(refused("a:"), HasSubstr("not ''"));
  EXPECT_THAT(refused(":2"), HasSubstr("':2' is not a host name"));
  EXPECT_THAT(refused("-oProxyCommand=x"), HasSubstr("is not a host name"));
  EXPECT_THAT(refused("a b"), HasSubstr("'a b' is not a host name"));
  EXPECT_THAT(refused("fd00::2"), HasSubstr("[fd00::2]:2"));
  EXPECT_THAT(refused("[fd00::2"), HasSubstr("not closed"));
  EXPECT_THAT(refused("[a]:2"), HasSubstr("'a' is none"));
  EXPECT_THAT(refused("[::1]2"), HasSubstr("only stand a colon"));
  EXPECT_THAT(refused("a:2,b,a"), HasSubstr("'a' stands there twice; merge the entries: a:3"));
}

TEST(LaunchHosts, AreFilledInTheirOrder) {
  const std::vector<Host> hosts{{"a", 2}, {"b", 2}, {"c", 1}};
  EXPECT_THAT(place_workers(3, hosts), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_EQ(place_workers(std::nullopt, hosts), hosts);
  EXPECT_THAT(place_workers(4, {}), ElementsAre(Host{"localhost", 4}));
  EXPECT_THAT(refusal_of([&] { place_workers(6, hosts); }),
              AllOf(HasSubstr("--workers 6"), HasSubstr("5 slots")));
  EXPECT_THAT(refusal_of([] { place_workers(0, {}); }), HasSubstr("--workers 0"));
  EXPECT_THAT(refusal_of([] { place_workers(-1, {}); }), HasSubstr("--workers -1"));
}

TEST(LaunchHosts, KnowThisMachineByItsNamesAndAddresses) {
  std::array<char, 256> own{};
  ASSERT_EQ(::gethostname(own.data(), own.size() - 1), 0);
  EXPECT_TRUE(is_this_machine("localhost"));
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  EXPECT_TRUE(is_this_machine(own.data()));
  EXPECT_FALSE(is_this_machine("192.0.2.250"));
  EXPECT_THROW(is_this_machine("no-such-host.invalid"), Error);
}

// ---- The command
// ---------------------------------------------------------------------------------

TEST(LaunchCommand, NamesWorkersHostsAgentAndVariables) {
  MpirunSettings settings;
  settings.root = true;
  settings.single_copy = false;
  settings.agent = "reach --fast";
  settings.names = {"CONVOY_A"};
  settings.more = {"--mca", "btl", "tcp,self"};
  EXPECT_EQ(
      quoted(mpirun_command({{"a", 2}, {"b", 1}}, settings, {"/opt/convoy", "train", "my job"})),
      "mpirun -n 3 --host a:2,b:1 --allow-run-as-root --oversubscribe --bind-to none --mca "
      "btl_base_warn_component_unused 0 --mca btl_vader_single_copy_mechanism none --mca plm "
      "rsh --mca plm_rsh_agent 'reach --fast' -x CONVOY_A --mca btl tcp,self /opt/convoy "
      "train 'my job'");
}

TEST(LaunchCommand, GivesWorkersEverythingButTheLaunch) {
  const std::vector<const char*> argv{
      "convoy",         "train",         "job.yaml",         "--workers", "2",
      "--set",          "train.batch=8", "--hosts=a:2,b",    "--json",    "--dry-run",
      "--launch-agent", "x y",           "--mpirun-args=-v", "--",        "--workers"};
  EXPECT_THAT(
      without_launch_options(static_cast<int>(argv.size()), argv.data()),
      ElementsAre("train", "job.yaml", "--set", "train.batch=8", "--json", "--", "--workers"));
}

TEST(LaunchCommand, WordsAreSplitAndQuotedAsByAShell) {
  EXPECT_THAT(split_words(R"( -x 'A B' "c d"e f\ g "" )", "x"),
              ElementsAre("-x", "A B", "c de", "f g", ""));
  const std::vector<std::string> words{"it's", "", "a b", "$HOME", "plain"};
  EXPECT_EQ(split_words(quoted(words), "x"), words);
  EXPECT_THAT(refusal_of([] { split_words("a 'b", "--mpirun-args"); }),
              HasSubstr("--mpirun-args: the ' in 'a 'b' is not closed"));
}

// ---- What mpirun says
// ----------------------------------------------------------------------------

const std::string kRule = std::string(74, '-') + "\n";

TEST(LaunchNoise, ExplanationsAreTakenOutAndTheirFactsKept) {
  NoiseFilter filter;
  const std::string text =
      "convoy: first\n" + kRule +
      "Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n" + kRule +
      "between\n" + kRule +
      "mpirun noticed that process rank 1 with PID 0 on node b exited on signal 9 (Killed).\n" +
      kRule + "mpirun: Forwarding signal 10 to job\n" + kRule +
      "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node a\n"
      "  Remote daemon: [[1,0],1] on node c\n\nThis is usually due\n" +
      kRule;
  std::string shown;
  for (const char c : text) shown += filter.pass(std::string(1, c));  // in the smallest pieces
  EXPECT_EQ(shown + filter.rest(), "convoy: first\nbetween\n");
  EXPECT_EQ(filter.first_end(), (WorkerEnd{1, "b", 9, 0}));
  EXPECT_THAT(filter.lost_hosts(), ElementsAre("c"));
  EXPECT_TRUE(filter.aborting());
}

TEST(LaunchNoise, CodesOfWorkersAreRead) {
  NoiseFilter filter;
  EXPECT_EQ(filter.pass(kRule +
                        "mpirun detected that one or more processes exited with non-zero status, "
                        "thus causing\nthe job to be terminated. The first process to do so "
                        "was:\n\n  Process name: [[29477,1],12]\n  Exit code:    3\n" +
                        kRule),
            "");
  EXPECT_EQ(filter.first_end(), (WorkerEnd{12, "", 0, 3}));
}

TEST(LaunchNoise, WhatIsNotUnderstoodIsShown) {
  NoiseFilter filter;
  const std::string unknown = kRule + "There are not enough slots available\n" + kRule;
  EXPECT_EQ(filter.pass(unknown), unknown);
  EXPECT_EQ(filter.pass(kRule + "Primary job"), "");
  EXPECT_EQ(filter.rest(), kRule + "Primary job");
}

TEST(LaunchNoise, LinesThatAreBegunAreShownAtOnce) {
  NoiseFilter filter;
  EXPECT_EQ(filter.pass("\rstep 1"), "\rstep 1");
  EXPECT_EQ(filter.pass("00\rstep 200"), "00\rstep 200");
  EXPECT_EQ(filter.pass("\n---"), "\n");
  EXPECT_EQ(filter.pass(" a list\n"), "--- a list\n");
}

// ---- Other programs
// ------------------------------------------------------------------------------

TEST(LaunchProcess, KeepsWhatAProgramSaidAndEndsOneThatHangs) {
  const Captured said = run_captured({"sh", "-c", "echo out; echo err >&2; exit 3"}, Seconds{20});
  EXPECT_EQ(said.code, 3);
  EXPECT_EQ(said.out, "out\n");
  EXPECT_EQ(said.err, "err\n");
  EXPECT_TRUE(run_captured({"sleep", "60"}, Seconds{0.05}).late);
  EXPECT_TRUE(run_captured({"sh", "-c", "exec >&- 2>&-; exec sleep 60"}, Seconds{0.05}).late);
  EXPECT_THROW(run_captured({"/no/such/program"}, Seconds{1}), Error);
}

// ---- Real workers
// --------------------------------------------------------------------------------

/// Runs tests_launched_worker, which is launcher and worker in one. An address of the loopback
/// network that this machine does not count as its own serves as another host.
class Launch : public Program {
 protected:
  static constexpr const char* kWorker = CONVOY_BINARY_DIR "/tests_launched_worker";
  static constexpr const char* kElsewhere = "127.0.0.2";

  static std::vector<std::string> run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    return arguments;
  }
  Outcome launched(std::vector<std::string> arguments,
                   const std::vector<std::string>& variables = {}) {
    return Process(folder_, run(std::move(arguments)), variables, kWorker).wait();
  }
  /// A launch agent that runs commands here, after `before`.
  std::string agent(const std::string& before = "") {
    const std::filesystem::path path = folder_ / "agent";
    put(path, "#!/bin/sh\nshift\n" + before + "\nexec sh -c \"$*\"\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  /// Waits, not forever, until `count` workers have said that they are there; their processes.
  std::vector<pid_t> workers_of(const Process& process, size_t count) {
    std::vector<pid_t> ids;
    for (const Seconds end = now() + Seconds{30}; ids.size() < count && now() < end;) {
      ids.clear();
      const std::string out = process.out_so_far();
      const std::regex id("worker [0-9]+ of [0-9]+ process ([0-9]+) ");
      for (std::sregex_iterator i(out.begin(), out.end(), id), last; i != last; ++i) {
        ids.push_back(std::stoi((*i)[1]));
      }
      ::usleep(1000);
    }
    EXPECT_EQ(ids.size(), count) << process.out_so_far();
    return ids;
  }
  /// A file of /proc/ID; empty if the process has gone, even while it is read.
  static std::string proc(pid_t id, const std::string& name) {
    std::ifstream file("/proc/" + std::to_string(id) + "/" + name);
    std::string line;
    std::getline(file, line);
    return line;
  }
  static bool alive(pid_t id) {
    const std::string stat = proc(id, "stat");
    return !stat.empty() && stat[stat.rfind(')') + 2] != 'Z';
  }
  static pid_t parent_of(pid_t id) {
    const std::string stat = proc(id, "stat");
    return std::atoi(stat.c_str() + stat.rfind(')') + 4);
  }
  /// The first one, or 0.
  static pid_t child_of(pid_t id) {
    return std::atoi(proc(id, "task/" + std::to_string(id) + "/children").c_str());
  }
  static void expect_gone(const std::vector<pid_t>& ids) {
    for (const pid_t id : ids) {
      for (const Seconds end = now() + Seconds{20}; alive(id) && now() < end;) ::usleep(1000);
      EXPECT_FALSE(alive(id)) << id;
    }
  }
};

TEST_F(Launch, StartsWorkersHereAndPassesOnWhatTheyPrint) {
  const Outcome o = launched({"--workers", "2"}, {"OMP_NUM_THREADS=7", "CONVOY_TEST_MARK=a b"});
  EXPECT_EQ(o.code, 0) << o.all();
  EXPECT_THAT(o.out, AllOf(HasSubstr("worker 0 of 2"), HasSubstr("worker 1 of 2"),
                           HasSubstr("threads unset mark a b\n"), Not(HasSubstr("threads 7"))));
  EXPECT_EQ(o.err, "");
}

TEST_F(Launch, StartsWorkersOnSeveralHostsThroughAnAgent) {
  const Outcome o = launched(
      {"--hosts", std::string("localhost,") + kElsewhere + ":2", "--launch-agent", agent()});
  EXPECT_EQ(o.code, 0) << o.all();
  EXPECT_THAT(o.out, AllOf(HasSubstr("worker 0 of 3"), HasSubstr("worker 2 of 3")));
}

TEST_F(Launch, ADryRunPrintsTheCommandAndStartsNothing) {
  const Outcome o = launched({"--workers=3", "--hosts=no-such-host.invalid:4", "--dry-run",
                              "--mpirun-args=--tag-output -x A", "--code", "5"});
  EXPECT_EQ(o.code, 0) << o.all();
  EXPECT_THAT(o.out, AllOf(testing::StartsWith("mpirun -n 3 --host no-such-host.invalid:3 "),
                           HasSubstr("--tag-output -x A "),
                           testing::EndsWith(std::string(kWorker) + " run --code 5\n")));
}

TEST_F(Launch, CodesOfWorkersBecomeItsOwn) {
  for (const int code : {1, 2}) {
    const Outcome o = launched({"--workers", "2", "--rank", "1", "--code", std::to_string(code)});
    EXPECT_EQ(o.code, code) << o.all();
    EXPECT_EQ(o.err, "");  // the worker would have said why
  }
  const Outcome strange = launched({"--workers", "2", "--rank", "1", "--code", "9"});
  EXPECT_EQ(strange.code, 1);
  EXPECT_EQ(strange.err, "convoy: worker 1 ended with exit code 9\n");
  const Outcome abrupt = launched({"--workers", "2", "--code", "2", "--without-finalize"});
  EXPECT_EQ(abrupt.code, 2) << abrupt.all();
}

TEST_F(Launch, AWorkerThatIsKilledIsNamedWithHostAndSignal) {
  const Outcome killed = launched({"--workers", "2", "--rank", "1", "--signal", "9"});
  EXPECT_EQ(killed.code, 1);
  EXPECT_THAT(killed.err,
              testing::MatchesRegex("convoy: worker 1 on [^ ]+ was killed by signal 9 .SIGKILL: "
                                    "Killed.; if nobody did, its host may be out of memory\n"));
  const Outcome crashed = launched({"--workers", "2", "--signal", "11"});
  EXPECT_EQ(crashed.code, 1);
  EXPECT_THAT(crashed.err, HasSubstr("was killed by signal 11 (SIGSEGV: Segmentation fault)\n"));
}

TEST_F(Launch, ASignalLetsAllWorkersSaveAndStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Process process(folder_, run({"--workers", "2", "--wait"}), {}, kWorker);
    const std::vector<pid_t> workers = workers_of(process, 2);
    process.send(signal);
    const Outcome o = process.wait();
    EXPECT_EQ(o.code, 128 + signal) << o.all();
    EXPECT_THAT(o.out, AllOf(HasSubstr("worker 0 saved"), HasSubstr("worker 1 saved")));
    EXPECT_EQ(lines(o.err).size(), 1U) << o.err;
    expect_gone(workers);
  }
}

TEST_F(Launch, ASignalBeforeTheWorkersAreThereIsNotLost) {
  for (const bool with_child : {false, true}) {
    Process process(folder_, run({"--workers", "2", "--wait"}), {}, kWorker);
    // As soon as mpirun is told what to start, or has begun to; before that, a signal only ends the
    // launcher itself.
    const auto started = [&] {
      const pid_t mpirun = child_of(process.id());
      return mpirun > 0 && proc(mpirun, "cmdline").starts_with("mpirun") &&
             (!with_child || child_of(mpirun) > 0);
    };
    for (const Seconds end = now() + Seconds{20}; !started() && now() < end;) ::usleep(100);
    process.send(SIGTERM);
    const Outcome o = process.wait();
    EXPECT_EQ(o.code, 128 + SIGTERM) << o.all();
    EXPECT_EQ(lines(o.err).size(), 1U) << o.err;
  }
}

TEST_F(Launch, ASecondSignalEndsWorkersThatDoNotStop) {
  Process process(folder_, run({"--workers", "2", "--wait", "--deaf"}), {}, kWorker);
  const std::vector<pid_t> workers = workers_of(process, 2);
  process.send(SIGINT);
  for (const Seconds end = now() + Seconds{20}; process.err_so_far().empty() && now() < end;) {
    ::usleep(1000);
  }
  process.send(SIGINT);
  const Outcome o = process.wait();
  EXPECT_EQ(o.code, 128 + SIGINT) << o.all();
  EXPECT_THAT(o.err, testing::EndsWith("convoy: ending the workers\n"));
  expect_gone(workers);
}

TEST_F(Launch, NothingStaysWhenAWorkerOrMpirunOrTheLauncherIsKilled) {
  enum class Victim { worker, mpirun, launcher };
  for (const Victim victim : {Victim::worker, Victim::mpirun, Victim::launcher}) {
    Process process(folder_, run({"--workers", "2", "--wait", "--deaf"}), {}, kWorker);
    const std::vector<pid_t> workers = workers_of(process, 2);
    ASSERT_EQ(workers.size(), 2U);
    const pid_t mpirun = parent_of(workers[0]);
    if (victim == Victim::launcher) {
      process.send(SIGKILL);
    } else {
      ::kill(victim == Victim::worker ? workers[1] : mpirun, SIGKILL);
    }
    const Outcome o = process.wait();
    expect_gone({workers[0], workers[1], mpirun});
    if (victim == Victim::launcher) continue;
    EXPECT_EQ(o.code, 1);
    EXPECT_THAT(o.err, HasSubstr(victim == Victim::worker
                                     ? "was killed by signal 9"
                                     : "convoy: mpirun was killed (SIGKILL); its workers were "
                                       "ended"));
  }
}

TEST_F(Launch, HostsThatAreNotReadyAreListedBeforeAnythingStarts) {
  const auto with = [&](const std::string& hosts, const std::string& before) {
    const Outcome o = launched({"--hosts", hosts, "--launch-agent", agent(before)});
    EXPECT_EQ(o.code, 2) << o.all();
    EXPECT_THAT(o.out, IsEmpty());
    return o.err;
  };
  const std::string here = std::string("localhost,") + kElsewhere;
  EXPECT_THAT(with("localhost,no-such-host.invalid," + std::string(kElsewhere),
                   "echo 'no route' >&2; exit 255"),
              AllOf(HasSubstr("2 of 3 hosts are not ready, nothing was started:"),
                    HasSubstr("\n  no-such-host.invalid  the name does not resolve"),
                    HasSubstr("\n  127.0.0.2             cannot be reached: no route\n"),
                    Not(HasSubstr("\n  localhost"))));
  EXPECT_THAT(with(here, "echo convoy 0.0.7; exit 0"),
              HasSubstr("says 'convoy 0.0.7', ours 'convoy " + version() + "'"));
  EXPECT_THAT(with(here, "PATH=/nowhere"), HasSubstr("cannot run the program"));
  EXPECT_THAT(with(here, "exit 81"), HasSubstr("has no folder " + folder_.string()));
  EXPECT_THAT(with(here, "exit 82"), HasSubstr("openmpi-bin"));
  EXPECT_THAT(with(here, "exit 83"), HasSubstr(std::string("has no program ") + kWorker));
  EXPECT_THAT(with("localhost,[2001:db8::1]", ""), HasSubstr("takes no IPv6 addresses"));
}

TEST_F(Launch, WhatCannotBeMeantIsRefused) {
  const Outcome within = launched({"--workers", "2"}, {"OMPI_COMM_WORLD_SIZE=2"});
  EXPECT_EQ(within.code, 2);
  EXPECT_THAT(within.err, HasSubstr("already a worker of mpirun"));
  const Outcome lonely = launched({"--mpirun-args", "-v"});
  EXPECT_EQ(lonely.code, 2);
  EXPECT_THAT(lonely.err, HasSubstr("add --workers N or --hosts LIST"));
  const Outcome without = launched({"--workers", "2"}, {"PATH=/nowhere"});
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("openmpi-bin"));
}

}  // namespace
}  // namespace convoy::app
