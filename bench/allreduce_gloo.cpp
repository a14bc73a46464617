// bench_allreduce: `convoy bench allreduce` with Gloo's algorithms beside ours and MPI's, in the
// same processes. Started by mpirun; the ranks tell each other Gloo's addresses over MPI.

#include <map>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "convoy/comm/mpi.hpp"

#include "app/allreduce_table.hpp"

namespace {

using namespace convoy;

/// What Gloo's ranks tell each other at the start. All of them set their keys in the same order, so
/// each time everybody gets everybody's.
class ExchangeStore : public gloo::rendezvous::Store {
 public:
  explicit ExchangeStore(comm::Communicator& c) : c_(c) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    std::vector<std::vector<char>> sizes(static_cast<size_t>(c_.size()), std::vector<char>(16));
    sizes[own()] = text_of(fmt::format("{:7} {:7}", key.size(), data.size()) + '\n');
    exchange(sizes);
    std::vector<std::vector<char>> both(sizes.size());
    std::vector<size_t> key_sizes(sizes.size());
    for (size_t r = 0; r < sizes.size(); ++r) {
      key_sizes[r] = std::stoul(std::string(sizes[r].begin(), sizes[r].begin() + 7));
      both[r].resize(key_sizes[r] + std::stoul(std::string(sizes[r].begin() + 8, sizes[r].end())));
    }
    both[own()] = text_of(key);
    both[own()].insert(both[own()].end(), data.begin(), data.end());
    exchange(both);
    for (size_t r = 0; r < both.size(); ++r) {
      const auto border = both[r].begin() + static_cast<int64_t>(key_sizes[r]);
      values_[std::string(both[r].begin(), border)] = {border, both[r].end()};
    }
  }
  std::vector<char> get(const std::string& key) override { return values_.at(key); }
  void wait(const std::vector<std::string>&) override {}

 private:
  static std::vector<char> text_of(const std::string& text) { return {text.begin(), text.end()}; }
  size_t own() const { return static_cast<size_t>(c_.rank()); }
  /// Everybody gets all[r] of rank r; their lengths are known.
  void exchange(std::vector<std::vector<char>>& all) {
    comm::Requests requests;
    for (int r = 0; r < c_.size(); ++r) {
      if (r == c_.rank()) continue;
      requests.add(
          c_.receive(r, 1, std::as_writable_bytes(std::span(all[static_cast<size_t>(r)]))));
      requests.add(c_.send(r, 1, std::as_bytes(std::span(all[own()]))));
    }
    comm::wait([](comm::Requests r) -> comm::Task { co_await std::move(r); }(std::move(requests)),
               Seconds{30}, "exchanging Gloo's addresses");
  }

  comm::Communicator& c_;
  std::map<std::string, std::vector<char>> values_;
};

/// The first network interface that is up and leads elsewhere; else the loop back.
std::string interface_to_others() {
  ifaddrs* all = nullptr;
  std::string name = "lo";
  if (getifaddrs(&all) != 0) return name;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    const bool usable = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET &&
                        (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable) continue;
    name = i->ifa_name;
    break;
  }
  freeifaddrs(all);
  return name;
}

std::shared_ptr<gloo::Context> connect(comm::Communicator& c, const std::string& interface) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = interface;
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(c.rank(), c.size());
  ExchangeStore store(c);
  context->connectFullMesh(store, device);
  return context;
}

app::AllreduceWay way_of(const std::shared_ptr<gloo::Context>& context, const char* name,
                         gloo::AllreduceOptions::Algorithm algorithm, std::span<float> values) {
  const auto sum = [=] {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(algorithm);
    options.setOutput(values.data(), values.size());
    options.setReduceFunction([](void* to, const void* a, const void* b, size_t count) {
      gloo::sum<float>(to, a, b, count);
    });
    gloo::allreduce(options);
  };
  return {name, values, sum};
}

std::vector<app::AllreduceWay> gloo_ways(const std::shared_ptr<gloo::Context>& context,
                                         std::span<float> values) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  using Halving = gloo::AllreduceHalvingDoubling<float>;
  auto halving = std::make_shared<Halving>(context, std::vector<float*>{values.data()},
                                           static_cast<int>(values.size()));
  return {way_of(context, "gloo-ring", Algorithm::RING, values),
          way_of(context, "gloo-bcube", Algorithm::BCUBE, values),
          {"gloo-half", values, [halving] { halving->run(); }}};
}

int run(int argc, char** argv) {
  CLI::App app("Sums over the ranks of a job: Convoy's, MPI's and Gloo's", "bench_allreduce");
  app::AllreduceArguments arguments;
  app::add_allreduce_options(app, arguments);
  std::string interface = interface_to_others();
  app.add_option("--interface", interface, "Network interface for Gloo");
  CLI11_PARSE(app, argc, argv);

  comm::MpiSession session;
  try {
    const std::shared_ptr<gloo::Context> context = connect(session.world(), interface);
    return app::compare_allreduce(session.world(), arguments, [&](std::span<float> values) {
      return gloo_ways(context, values);
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_allreduce: rank {}: {}\n", session.world().rank(), error.what());
    session.abort(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
