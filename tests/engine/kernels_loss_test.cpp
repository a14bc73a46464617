#include "tests/engine/kernel_testing.hpp"

namespace convoy::engine {
namespace {

using LossKernels = KernelTest;
CONVOY_FOR_EVERY_INSTRUCTION_SET(LossKernels);

const std::vector<int64_t> kClasses{1, 2, 3, 8, 10, 20, 100, 1000};

/// Rows of logits whose padding holds what must not be read, and labels of which some are missing.
struct Rows {
  int64_t n = 9;
  int64_t classes;
  int64_t columns;
  Floats x;
  std::vector<int32_t> labels;
  Rows(int64_t count, double deviation)
      : classes(count), columns(round_up(count, kBlock)), x(normal(n * columns, 1, 0, deviation)) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = classes; c < columns; ++c) x[index(i, c)] = 99;
      labels.push_back(i == 4 ? -1 : static_cast<int32_t>((i * 7 + 3) % classes));
    }
    // A sure hit, a tie that goes to the first, and one that the label loses.
    x[index(0, labels[0])] = 50;
    x[index(1, 0)] = x[index(1, classes - 1)] = 60;
    labels[1] = 0;
    x[index(2, 0)] = x[index(2, classes - 1)] = 60;
    labels[2] = static_cast<int32_t>(classes - 1);
  }
  size_t index(int64_t i, int64_t c) const { return static_cast<size_t>(i * columns + c); }
  int64_t argmax(int64_t i) const {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) {
      if (x[index(i, c)] > x[index(i, best)]) best = c;
    }
    return best;
  }
};

TEST_P(LossKernels, CrossEntropyMatchesItsDefinition) {
  for (const int64_t classes : kClasses) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const double deviation : {1.0, 40.0}) {
        const Rows r(classes, deviation);
        Floats dx = garbage(r.n * r.columns);
        double loss = 0.5;
        double expected_loss = 0.5;
        int64_t correct = 2;
        int64_t expected_correct = 2;
        kernels().softmax_cross_entropy(r.n, classes, static_cast<float>(smoothing), 0.25F,
                                        r.x.data(), r.labels.data(), dx.data(), &loss, &correct);
        for (int64_t i = 0; i < r.n; ++i) {
          const int32_t label = r.labels[static_cast<size_t>(i)];
          const double top = r.x[r.index(i, r.argmax(i))];
          double sum = 0;
          for (int64_t c = 0; c < classes; ++c) sum += std::exp(r.x[r.index(i, c)] - top);
          for (int64_t c = 0; c < r.columns; ++c) {
            double gradient = 0;
            if (label >= 0 && c < classes) {
              const double z = r.x[r.index(i, c)] - top;
              const double target =
                  smoothing / static_cast<double>(classes) + (c == label ? 1 - smoothing : 0);
              expected_loss -= target * (z - std::log(sum));
              gradient = 0.25 * (std::exp(z) / sum - target);
            }
            expect_close(dx[r.index(i, c)], gradient, 2e-7, "row " + std::to_string(i));
          }
          expected_correct += label == r.argmax(i) ? 1 : 0;
        }
        expect_close(loss, expected_loss, 1e-6, "the loss");
        EXPECT_EQ(correct, expected_correct);

        double again = 0.5;
        kernels().softmax_cross_entropy(r.n, classes, static_cast<float>(smoothing), 0.25F,
                                        r.x.data(), r.labels.data(), nullptr, &again, &correct);
        EXPECT_EQ(again, loss);
      }
    }
  }
}

TEST_P(LossKernels, SquaredErrorMatchesItsDefinition) {
  for (const int64_t classes : kClasses) {
    const Rows r(classes, 1.0);
    Floats dx = garbage(r.n * r.columns);
    double loss = 0;
    double expected_loss = 0;
    int64_t correct = 0;
    int64_t expected_correct = 0;
    kernels().mean_squared_error(r.n, classes, 0.25F, r.x.data(), r.labels.data(), dx.data(), &loss,
                                 &correct);
    for (int64_t i = 0; i < r.n; ++i) {
      const int32_t label = r.labels[static_cast<size_t>(i)];
      for (int64_t c = 0; c < r.columns; ++c) {
        double difference = 0;
        if (label >= 0 && c < classes) difference = r.x[r.index(i, c)] - (c == label ? 1.0 : 0.0);
        expected_loss += difference * difference / static_cast<double>(classes);
        expect_close(dx[r.index(i, c)], 0.5 * difference / static_cast<double>(classes), 2e-7,
                     "row " + std::to_string(i));
      }
      expected_correct += label == r.argmax(i) ? 1 : 0;
    }
    expect_close(loss, expected_loss, 1e-6, "the loss");
    EXPECT_EQ(correct, expected_correct);
  }
}

TEST_P(LossKernels, ABrokenLogitBreaksTheLossAndIsNeverCorrect) {
  for (const int64_t where : {0, 3, 9}) {
    for (const float broken : {std::nanf(""), HUGE_VALF}) {
      Floats x = normal(16, 1);
      x[static_cast<size_t>(where)] = broken;
      const int32_t label = 3;
      double entropy = 0;
      double squares = 0;
      int64_t correct = 0;
      kernels().softmax_cross_entropy(1, 10, 0, 1, x.data(), &label, nullptr, &entropy, &correct);
      if (std::isnan(broken)) {
        kernels().mean_squared_error(1, 10, 1, x.data(), &label, nullptr, &squares, &correct);
        EXPECT_TRUE(std::isnan(squares));
        EXPECT_EQ(correct, 0);
      }
      EXPECT_TRUE(std::isnan(entropy));
    }
  }
}

TEST_P(LossKernels, ExponentialsAreExactToTheLastDigits) {
  // The gradient of class 1 against class 0 at logits (0, −z) is e⁻ᶻ/(1 + e⁻ᶻ).
  for (double z = 0.01; z < 86; z *= 1.01) {
    Floats x = zeros(8);
    x[1] = static_cast<float>(-z);
    Floats dx = garbage(8);
    const int32_t label = 0;
    double loss = 0;
    int64_t correct = 0;
    kernels().softmax_cross_entropy(1, 2, 0, 1, x.data(), &label, dx.data(), &loss, &correct);
    const double e = std::exp(double{x[1]});
    ASSERT_NEAR(dx[1] / (e / (1 + e)), 1.0, 3e-7) << z;
  }
}

}  // namespace
}  // namespace convoy::engine
