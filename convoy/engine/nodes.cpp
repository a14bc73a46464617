// Which layers are computed together.

#include <algorithm>

#include "convoy/engine/builder.hpp"

namespace convoy::engine {
namespace {

using model::LayerId;

class Grouping {
 public:
  explicit Grouping(const model::Graph& graph)
      : graph_(graph), users_(graph.users()), taken_(graph.layers().size(), false) {}

  std::vector<Node> run() {
    std::vector<Node> nodes;
    const auto count = static_cast<LayerId>(graph_.layers().size());
    for (LayerId id = 1; id < count; ++id) {
      if (!taken_[static_cast<size_t>(id)]) nodes.push_back(group(id));
    }
    mark_pools(nodes);
    // A fused addition must wait for its other input, so a node stands where its chain ends.
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const Node& a, const Node& b) { return a.result < b.result; });
    return nodes;
  }

 private:
  template <typename T>
  const T* as(LayerId id) const {
    return std::get_if<T>(&graph_.layer(id).kind);
  }

  bool is_relu(LayerId id) const {
    const auto* activation = as<model::Activation>(id);
    return activation != nullptr && activation->kind == model::ActivationKind::relu;
  }

  /// The layer that alone reads `id`, or −1.
  LayerId only_user(LayerId id) const {
    if (users_[static_cast<size_t>(id)] != 1) return -1;
    const auto count = static_cast<LayerId>(graph_.layers().size());
    for (LayerId user = id + 1; user < count; ++user) {
      const auto& inputs = graph_.layer(user).inputs;
      if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) return user;
    }
    return -1;
  }

  void take_relu(Node& node) {
    const LayerId user = only_user(node.result);
    if (user < 0 || !is_relu(user)) return;
    node.relu = true;
    node.result = user;
    taken_[static_cast<size_t>(user)] = true;
  }

  void take_addition(Node& node) {
    const LayerId user = only_user(node.result);
    if (user < 0 || as<model::Add>(user) == nullptr || taken_[static_cast<size_t>(user)]) return;
    const auto& inputs = graph_.layer(user).inputs;
    if (inputs.size() != 2 || inputs[0] == inputs[1]) return;
    node.residual = inputs[0] == node.result ? inputs[1] : inputs[0];
    node.result = user;
    taken_[static_cast<size_t>(user)] = true;
  }

  Node group(LayerId id) {
    Node node;
    node.head = id;
    node.result = id;
    if (as<model::BatchNorm>(id) != nullptr) {
      take_addition(node);
      take_relu(node);
    } else if (as<model::Conv>(id) != nullptr || as<model::Linear>(id) != nullptr ||
               as<model::Add>(id) != nullptr) {
      take_relu(node);
    }
    return node;
  }

  void mark_pools(std::vector<Node>& nodes) const {
    for (Node& pool : nodes) {
      const auto* kind = as<model::Pool>(pool.head);
      if (kind == nullptr || kind->kind != model::PoolKind::max) continue;
      const LayerId from = graph_.layer(pool.head).inputs[0];
      if (only_user(from) != pool.head) continue;
      for (Node& node : nodes) {
        if (node.result != from || !node.relu || as<model::Conv>(node.head) == nullptr) continue;
        node.pool_undoes_relu = true;
        pool.pool_undoes_relu = true;
      }
    }
  }

  const model::Graph& graph_;
  std::vector<int> users_;
  std::vector<bool> taken_;
};

}  // namespace

std::vector<Node> plan_nodes(const model::Graph& graph) {
  return Grouping(graph).run();
}

}  // namespace convoy::engine
