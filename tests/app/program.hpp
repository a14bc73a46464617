#pragma once
// Runs the real program as a user would, in a folder of its own, and keeps what it printed.

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convoy/train/safetensors.hpp"

namespace convoy::app {

struct Outcome {
  int code = -1;  ///< 128 + number if a signal killed it
  std::string out;
  std::string err;
  std::string all() const { return out + err; }
};

inline std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    all.push_back(text.substr(begin, end - begin));
  }
  return all;
}

/// Every line of `text`; throws nlohmann's exception at one that is not JSON.
inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> all;
  for (const std::string& line : lines(text)) all.push_back(nlohmann::json::parse(line));
  return all;
}

/// A process of the program, or of another one, started in `folder`.
class Process {
 public:
  Process(const std::filesystem::path& folder, std::vector<std::string> arguments,
          const std::vector<std::string>& variables = {},
          const std::string& program = CONVOY_BINARY_DIR "/convoy")
      : out_(folder / ".out"), err_(folder / ".err") {
    arguments.insert(arguments.begin(), program);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), kFlags, 0644);
    ::posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), kFlags, 0644);
    ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<std::string> settings = variables;
    settings.push_back("XDG_CACHE_HOME=" + (folder / "cache").string());
    for (char** variable = environ; *variable != nullptr; ++variable) settings.push_back(*variable);
    std::vector<char*> envp;
    envp.reserve(settings.size() + 1);
    for (std::string& setting : settings) envp.push_back(setting.data());
    envp.push_back(nullptr);
    const int error = ::posix_spawn(&id_, argv[0], &actions, nullptr, argv.data(), envp.data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  }
  ~Process() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const { ::kill(id_, signal); }
  pid_t id() const { return id_; }
  std::string out_so_far() const { return content(out_); }
  std::string err_so_far() const { return content(err_); }

  Outcome wait() {
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(out_),
            content(err_)};
  }

 private:
  std::filesystem::path out_;
  std::filesystem::path err_;
  pid_t id_ = -1;
};

/// A fresh folder with a small job in it: dropout, batch norm and augmentation, 24 steps.
class Program : public testing::Test {
 protected:
  static constexpr const char* kJob = R"(model:
  name: small
  layers:
  - {conv: {out: 8, kernel: 3, pad: 1, bias: false}, name: stem}
  - batch-norm
  - relu
  - global-average-pool
  - dropout: 0.2
  - {linear: 4, name: classes}
  - softmax-cross-entropy
data:
  {kind: synthetic, shape: [3, 8, 8], classes: 4, size: 256, augment: {flip: true, pad_crop: 1}}
train:
  batch: 32
  epochs: 3
  lr: {peak: 0.05, schedule: one-cycle}
engine: {grain: 8, lanes: 2, algorithms: direct}
)";

  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "convoy-app-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    put(folder_ / "job.yaml", kJob);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Outcome convoy(std::vector<std::string> arguments,
                 const std::vector<std::string>& variables = {}) const {
    return Process(folder_, std::move(arguments), variables).wait();
  }

  static std::vector<std::string> train_arguments(const std::string& run,
                                                  const std::vector<std::string>& settings) {
    std::vector<std::string> arguments{"train", "job.yaml", "--run", run};
    for (const std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    return arguments;
  }
  Outcome train(const std::string& run, const std::vector<std::string>& settings = {}) const {
    return convoy(train_arguments(run, settings));
  }
  Outcome resume(const std::string& run, const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> arguments{"train", "--resume", run};
    for (const std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    return convoy(arguments);
  }

  std::filesystem::path last(const std::string& run) const {
    return folder_ / run / "checkpoints/last.safetensors";
  }
  /// Weights, statistics and optimizer state of a run's last checkpoint.
  std::vector<train::NamedTensor> tensors(const std::string& run) const {
    return train::read_safetensors(last(run)).tensors;
  }
  std::vector<nlohmann::json> events(const std::string& run, const std::string& kind) const {
    std::vector<nlohmann::json> found;
    for (nlohmann::json& event : json_lines(content(folder_ / run / "events.jsonl"))) {
      if (event.at("event") == kind) found.push_back(std::move(event));
    }
    return found;
  }

  std::filesystem::path folder_;
};

}  // namespace convoy::app
