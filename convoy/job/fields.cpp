#include "convoy/job/fields.hpp"

#include <algorithm>

#include "convoy/base/text.hpp"

namespace convoy::job {
namespace {

/// at<&Job::train, &Train::batch> is the accessor of train.batch.
template <auto... Members>
auto& at(Job& job) {
  return (job.*....*Members);
}

constexpr Range from(double min) {
  return {.min = min};
}
constexpr Range above(double min) {
  return {.min = min, .above_min = true};
}
constexpr Range between(double min, double max) {
  return {.min = min, .max = max};
}
constexpr Range above_up_to(double min, double max) {
  return {.min = min, .max = max, .above_min = true};
}
constexpr Range up_to_below(double min, double max) {
  return {.min = min, .max = max, .below_max = true};
}

// clang-format off
std::vector<Section> make_sections() {
  return {
      {.key = "", .help = "What to train, on what, how, and on which part of the machine."},
      {.key = "data", .help = "The samples to learn from and how they are prepared.",
       .also = {"dataset"}},
      {.key = "data.augment", .help = "Random changes to training samples; evaluation sees none.",
       .more = "What a sample looks like depends on the seed, the epoch and the sample alone, "
               "never on the thread that prepares it.",
       .also = {"augmentation"}},
      {.key = "train", .help = "Batch, length, optimizer, evaluation and checkpoints.",
       .also = {"training"}},
      {.key = "train.lr", .help = "The learning rate over time.",
       .more = "A number in place of the map is the peak: `lr: 0.1` means `lr: {peak: 0.1}`.",
       .shorthand = "train.lr.peak", .also = {"learning_rate", "lr_schedule"}},
      {.key = "engine", .help = "How the work is laid out on this machine.",
       .more = "None of these keys is needed: Convoy chooses by the machine and the model, and prints "
               "what it chose. Whatever is set here it never touches."},
      {.key = "sync", .help = "How the gradients of several workers become one update.",
       .more = "With one worker all modes are the same."},
      {.key = "cluster", .help = "Groups of workers that do not wait for each other.",
       .more = "`cluster: auto` leaves the groups to the measurements. With one worker there is one group.",
       .shorthand = "cluster.groups"},
      {.key = "parallel", .help = "Layers that are split over workers."},
  };
}

std::vector<Field> model_and_data() {
  return {
      {.key = "model", .place = at<&Job::model>,
       .help = "The network: the name of one in the zoo, or a graph.",
       .more = "`model: resnet-20`, the same with options as in "
               "`model: {name: resnet-20, classes: 100}`, or a graph of layers (docs/job.md "
               "shows one). Options of a zoo network can be overridden, too: `--set model.classes=100`.",
       .example = "lenet", .required = true, .also = {"net", "network", "arch"}},

      {.key = "data.kind", .place = at<&Job::data, &Data::kind>,
       .help = "The format of the data set.",
       .more = "idx: the four files of MNIST and Fashion-MNIST, plain or gzipped. cifar10, "
               "cifar100: the official binary files. folder: JPEG and PNG images in a folder for each "
               "class; the first run packs them into one file beside it. packed: such a file "
               "(convoy pack). synthetic: noise of any shape, for benchmarks.",
       .choices = {"idx", "cifar10", "cifar100", "folder", "packed", "synthetic"}, .example = "idx",
       .required = true, .also = {"format", "type"}},
      {.key = "data.path", .place = at<&Job::data, &Data::path>,
       .help = "The folder that holds the files; of kind packed, the file.",
       .more = "Needed unless the kind is synthetic. A relative path starts at the folder convoy "
               "was started in.",
       .empty = "none", .example = "data/fashion-mnist", .also = {"dir", "folder", "root"}},
      {.key = "data.shape", .place = at<&Job::data, &Data::shape>,
       .help = "Channels, height and width of what the network reads: synthetic, folder, packed.",
       .more = "Needed when the kind is synthetic (`[429, 1, 1]` is a vector of 429 values), and for "
               "images that are not all of one size, which are decoded and scaled to it.",
       .range = between(1, 65536), .count = 3, .empty = "as in the files"},
      {.key = "data.classes", .place = at<&Job::data, &Data::classes>,
       .help = "Classes of a synthetic data set.", .range = from(1)},
      {.key = "data.size", .place = at<&Job::data, &Data::size>,
       .help = "Training samples of a synthetic data set.", .unit = "samples",
       .range = from(1)},
      {.key = "data.mean", .place = at<&Job::data, &Data::mean>,
       .help = "Subtracted from the values of each channel, which lie from 0 to 1.",
       .range = between(0, 1), .empty = "measured on the training set"},
      {.key = "data.std", .place = at<&Job::data, &Data::std>,
       .help = "Divides the values of each channel after the mean is subtracted.",
       .range = above(0), .empty = "measured on the training set", .also = {"stddev"}},
      {.key = "data.limit", .place = at<&Job::data, &Data::limit>,
       .help = "Use only the first so many training samples.", .unit = "samples",
       .range = from(0), .zero = "all"},
      {.key = "data.threads", .place = at<&Job::data, &Data::threads>,
       .help = "Threads of a worker that prepare samples ahead of its lanes.",
       .more = "auto: as many as one sample's preparation and the lanes' speed, both measured, ask "
               "for; more if lanes still wait.",
       .range = between(0, 1024), .zero = "auto", .also = {"workers", "num_workers"}},
      {.key = "data.center_crop", .place = at<&Job::data, &Data::center_crop>,
       .help = "How much of an image is shown where no random part is: this part of the largest "
               "centred region that has the shape of the input.",
       .more = "For images that are decoded and scaled; 0.875 is what is usual with ImageNet.",
       .range = above_up_to(0, 1), .also = {"resize_ratio"}},
      {.key = "data.bad", .place = at<&Job::data, &Data::bad>,
       .help = "What to do about training samples that are damaged.",
       .more = "stop: end with the name of the first one. skip: say which, and show another sample of "
               "the same grain in its place.",
       .choices = {"stop", "skip"}},
      {.key = "data.copies", .place = at<&Job::data, &Data::copies>,
       .help = "How many copies of packed training samples the workers hold in memory together.",
       .more = "auto: as many as fit into data.memory, at most one for each worker. If not even one "
               "fits, they are read from disk, which is said.",
       .range = between(0, 65536), .zero = "auto"},
      {.key = "data.memory", .place = at<&Job::data, &Data::memory>,
       .help = "The most memory of a worker that packed training samples may take.",
       .more = "auto: half of what its host has free, divided among the host's workers.",
       .zero = "auto"},
      {.key = "data.exchange", .place = at<&Job::data, &Data::exchange>,
       .help = "How packed samples come to the worker that trains on them, if another holds them.",
       .more = "fetch: they are sent ahead of every step, while another is computed. shuffle: they "
               "change hands every data.shuffle_epochs, each to the worker that will use it in the "
               "epoch that begins; fetched in the epochs between. auto: what the measured links and "
               "steps make cheaper. Either way training sees the same samples in the same order.",
       .choices = {"auto", "fetch", "shuffle"}},
      {.key = "data.shuffle_epochs", .place = at<&Job::data, &Data::shuffle_epochs>,
       .help = "How often packed samples change hands where data.exchange lets them.",
       .unit = "epochs", .range = from(1)},

      {.key = "data.augment.flip", .place = at<&Job::data, &Data::augment, &Augment::flip>,
       .help = "Mirror left to right with probability 1/2.", .also = {"mirror", "hflip"}},
      {.key = "data.augment.pad_crop",
       .place = at<&Job::data, &Data::augment, &Augment::pad_crop>,
       .help = "Pad with zeros on all sides, then crop back at a random place.",
       .unit = "pixels", .range = between(0, 65536), .zero = "off", .also = {"crop", "pad"}},
      {.key = "data.augment.cutout", .place = at<&Job::data, &Data::augment, &Augment::cutout>,
       .help = "Side of a randomly placed square that is set to the mean.", .unit = "pixels",
       .range = between(0, 65536), .zero = "off"},
      {.key = "data.augment.crop_area",
       .place = at<&Job::data, &Data::augment, &Augment::crop_area>,
       .help = "Show a random part of the image, scaled to the input: least and largest part of "
               "its area.",
       .more = "`[0.08, 1]` is what is usual with ImageNet.", .range = above_up_to(0, 1), .count = 2,
       .empty = "off", .also = {"random_resized_crop", "scale"}},
      {.key = "data.augment.crop_aspect",
       .place = at<&Job::data, &Data::augment, &Augment::crop_aspect>,
       .help = "Least and largest width divided by height of the random part.",
       .range = above(0), .count = 2, .empty = "that of the input", .also = {"ratio"}},
      {.key = "data.augment.jitter", .place = at<&Job::data, &Data::augment, &Augment::jitter>,
       .help = "Brightness, contrast and saturation are multiplied by random factors from 1 - x "
               "to 1 + x.",
       .range = between(0, 1), .count = 3, .empty = "off", .also = {"color_jitter"}},
  };
}

std::vector<Field> training() {
  return {
      {.key = "train.batch", .place = at<&Job::train, &Train::batch>,
       .help = "Samples of one update, over all lanes and workers together.",
       .more = "auto: the batch with the least predicted time to the target, from measured steps "
               "and the gradient noise of the first ones (docs/algorithms.md); needs "
               "train.lr.base_batch.",
       .unit = "samples", .range = between(0, kLargestBatch), .zero = "auto",
       .also = {"batch_size", "batchsize"}},
      {.key = "train.epochs", .place = at<&Job::train, &Train::epochs>,
       .help = "How many times the training set is passed; need not be whole.",
       .unit = "epochs", .range = above_up_to(0, 1e6), .also = {"num_epochs", "max_epochs"}},
      {.key = "train.max_steps", .place = at<&Job::train, &Train::max_steps>,
       .help = "Stop after so many updates if the epochs last longer.", .unit = "steps",
       .range = from(0), .zero = "off", .also = {"steps", "iterations", "max_iter"}},
      {.key = "train.max_time", .place = at<&Job::train, &Train::max_seconds>,
       .help = "Stop after so much time if the epochs last longer.",
       .more = "Evaluates and saves before it stops, like at the end of training.",
       .range = from(0), .zero = "off", .spelling = Spelling::duration,
       .also = {"max_seconds", "timeout"}},
      {.key = "train.seed", .place = at<&Job::train, &Train::seed>,
       .help = "Decides initial weights, order of samples, augmentation and dropout.",
       .more = "The same seed and grain give the same weights, bit for bit, however many lanes run, on "
               "machines of one instruction set."},
      {.key = "train.optimizer", .place = at<&Job::train, &Train::optimizer>,
       .help = "The update rule.", .choices = {"sgd", "adam", "lars"}},
      {.key = "train.momentum", .place = at<&Job::train, &Train::momentum>,
       .help = "sgd, lars: how much of the last update is kept.", .range = up_to_below(0, 1)},
      {.key = "train.nesterov", .place = at<&Job::train, &Train::nesterov>,
       .help = "sgd: look ahead along the momentum."},
      {.key = "train.weight_decay", .place = at<&Job::train, &Train::weight_decay>,
       .help = "Adds this times the weight to its gradient.", .range = from(0),
       .also = {"wd", "l2", "decay"}},
      {.key = "train.decay_all", .place = at<&Job::train, &Train::decay_all>,
       .help = "false: biases and batch norm are exempt from weight decay."},
      {.key = "train.beta1", .place = at<&Job::train, &Train::beta1>,
       .help = "adam: decay of the mean of gradients.", .range = up_to_below(0, 1)},
      {.key = "train.beta2", .place = at<&Job::train, &Train::beta2>,
       .help = "adam: decay of the mean of squared gradients.", .range = up_to_below(0, 1)},
      {.key = "train.epsilon", .place = at<&Job::train, &Train::epsilon>,
       .help = "adam: keeps the division finite.", .range = above(0), .also = {"eps"}},
      {.key = "train.trust", .place = at<&Job::train, &Train::trust>,
       .help = "lars: trust coefficient, the size of an update relative to the weights.",
       .range = above(0), .also = {"trust_coefficient"}},
      {.key = "train.clip_norm", .place = at<&Job::train, &Train::clip_norm>,
       .help = "Scale the whole gradient down when its norm is larger.", .range = from(0),
       .zero = "off", .also = {"grad_clip", "gradient_clipping", "max_grad_norm"}},
      {.key = "train.label_smoothing", .place = at<&Job::train, &Train::label_smoothing>,
       .help = "Share of the target's probability that is spread over all classes.",
       .range = up_to_below(0, 1), .also = {"smoothing"}},
      {.key = "train.eval_every", .place = at<&Job::train, &Train::eval_every>,
       .help = "Evaluate on the test set every so many epochs, and always at the end.",
       .unit = "epochs", .range = from(0), .zero = "off"},
      {.key = "train.patience", .place = at<&Job::train, &Train::patience>,
       .help = "Stop early after so many evaluations without a better one.",
       .unit = "evaluations", .range = from(0), .zero = "off", .also = {"early_stopping"}},
      {.key = "train.target", .place = at<&Job::train, &Train::target>,
       .help = "Stop at the first evaluation with this test accuracy.",
       .more = "A part of 1: `target: 0.9` is 90 %.", .range = between(0, 1), .zero = "off",
       .also = {"target_accuracy", "goal"}},
      {.key = "train.checkpoint_every", .place = at<&Job::train, &Train::checkpoint_every>,
       .help = "Save the last state every so many epochs, and always at the end.",
       .unit = "epochs", .range = from(0), .zero = "off", .also = {"save_every"}},
  };
}

std::vector<Field> learning_rate() {
  return {
      {.key = "train.lr.peak", .place = at<&Job::train, &Train::lr, &LearningRate::peak>,
       .help = "The largest learning rate.", .range = above(0), .also = {"max", "base", "rate"}},
      {.key = "train.lr.schedule", .place = at<&Job::train, &Train::lr, &LearningRate::schedule>,
       .help = "The course of the learning rate after warm-up.",
       .more = "constant: stays at the peak. step: multiplied by gamma every step_epochs. "
               "multi-step: multiplied by gamma at each milestone. polynomial: falls to final as "
               "the remaining share of training to the given power. cosine: falls to final along "
               "half a cosine. one-cycle: rises from peak/25 to the peak during warm-up, then "
               "falls along half a cosine to final.",
       .choices = {"constant", "step", "multi-step", "polynomial", "cosine", "one-cycle"},
       .also = {"scheduler", "policy", "kind"}},
      {.key = "train.lr.warmup_epochs",
       .place = at<&Job::train, &Train::lr, &LearningRate::warmup_epochs>,
       .help = "Rise linearly to the peak over so many epochs.",
       .more = "With one-cycle, 0 means 30 % of the training.", .unit = "epochs",
       .range = from(0), .also = {"warmup"}},
      {.key = "train.lr.final", .place = at<&Job::train, &Train::lr, &LearningRate::final>,
       .help = "polynomial, cosine, one-cycle: the learning rate at the end.",
       .range = from(0), .also = {"min", "end"}},
      {.key = "train.lr.step_epochs",
       .place = at<&Job::train, &Train::lr, &LearningRate::step_epochs>,
       .help = "step: epochs between two drops.", .unit = "epochs", .range = above(0),
       .also = {"step_size"}},
      {.key = "train.lr.milestones",
       .place = at<&Job::train, &Train::lr, &LearningRate::milestones>,
       .help = "multi-step: the epochs at which the learning rate drops, ascending.",
       .unit = "epochs", .range = above(0), .empty = "none"},
      {.key = "train.lr.gamma", .place = at<&Job::train, &Train::lr, &LearningRate::gamma>,
       .help = "step, multi-step: the factor of a drop.", .range = above(0)},
      {.key = "train.lr.power", .place = at<&Job::train, &Train::lr, &LearningRate::power>,
       .help = "polynomial: its exponent.", .range = above(0)},
      {.key = "train.lr.base_batch",
       .place = at<&Job::train, &Train::lr, &LearningRate::base_batch>,
       .help = "Linear scaling rule: peak and final are meant for this batch.",
       .more = "They are multiplied by train.batch / base_batch, so that a job keeps its learning "
               "rate per sample when only the batch changes.",
       .unit = "samples", .range = from(0), .zero = "off"},
  };
}

std::vector<Field> machine() {
  return {
      {.key = "engine.grain", .place = at<&Job::engine, &Engine::grain>,
       .help = "Samples of one grain, the slice of a batch that a lane runs end to end.",
       .more = "Divides the batch. Batch norm takes its statistics over a grain, so the grain is "
               "part of the result; the number of lanes is not. auto: by measurement.",
       .unit = "samples", .range = from(0), .zero = "auto",
       .also = {"grain_size", "micro_batch"}},
      {.key = "engine.lanes", .place = at<&Job::engine, &Engine::lanes>,
       .help = "Grains that run at the same time.",
       .more = "auto: one lane per physical core, or fewer with several threads each if that is "
               "measured to be faster.",
       .range = between(0, 4096), .zero = "auto", .also = {"num_threads", "cores", "cpus"}},
      {.key = "engine.threads_per_lane", .place = at<&Job::engine, &Engine::threads_per_lane>,
       .help = "Threads inside a lane.",
       .more = "More than one is for models whose memory per lane would be too large, or where it "
               "is measured to be faster.",
       .range = between(0, 4096), .zero = "auto"},
      {.key = "engine.algorithms", .place = at<&Job::engine, &Engine::algorithms>,
       .help = "How convolutions are computed.",
       .more = "auto: for each layer and direction the fastest that fits into memory, measured on "
               "this machine (docs/algorithms.md). direct, lowering, winograd-2x2, "
               "winograd-4x4, fft: that one wherever it is possible. Else the path of a plan.yaml, whose algorithms "
               "are taken as they are.",
       .also = {"algorithm", "conv"}},
      {.key = "engine.precision", .place = at<&Job::engine, &Engine::precision>,
       .help = "exact leaves out winograd-4x4, whose results carry about 10 times the rounding "
               "error of the definition.",
       .choices = {"exact", "fast"}},
      {.key = "engine.memory", .place = at<&Job::engine, &Engine::memory>,
       .help = "The most memory the run may take; what would take more is refused at the start.",
       .more = "auto: what the machine has free.", .zero = "auto", .also = {"max_memory", "ram"}},

      {.key = "sync.mode", .place = at<&Job::sync, &Sync::mode>,
       .help = "bsp: equal shares for all workers; balanced: shares by their speed.",
       .more = "These two give the same weights. The others are for comparing, and do not: stale and "
               "asynchronous: every worker trains on batches of its own, and updates the model whenever it "
               "has one; stale waits for workers that are more than sync.bound updates behind. backup: "
               "a step does not wait for the sync.backups slowest workers, and drops their gradients "
               "(docs/schemes.md).",
       .choices = {"bsp", "balanced", "stale", "asynchronous", "backup"}},
      {.key = "sync.predictor", .place = at<&Job::sync, &Sync::predictor>,
       .help = "How the next speed of a worker is foreseen, for mode balanced.",
       .more = "auto: by the one that was right most lately, for each worker (docs/balance.md).",
       .choices = {"last", "average", "arima", "recurrent", "narx", "auto"}},
      {.key = "sync.solver", .place = at<&Job::sync, &Sync::solver>,
       .help = "How shares are made of speeds, for mode balanced.",
       .more = "proportional: time is proportional to grains. profile: each worker's time is measured "
               "as a function of its grains. feedback: grains move from the slowest to the fastest worker, without "
               "any prediction.",
       .choices = {"proportional", "profile", "feedback"}},
      {.key = "sync.bound", .place = at<&Job::sync, &Sync::bound>,
       .help = "stale: how many updates a worker may be ahead of the slowest.",
       .unit = "updates", .range = from(0)},
      {.key = "sync.backups", .place = at<&Job::sync, &Sync::backups>,
       .help = "backup: how many workers a step does not wait for.",
       .unit = "workers", .range = from(0)},
      {.key = "sync.reproducible", .place = at<&Job::sync, &Sync::reproducible>,
       .help = "The same weights, bit for bit, on any number of workers and lanes (with one grain).",
       .also = {"deterministic"}},
      {.key = "sync.allreduce", .place = at<&Job::sync, &Sync::allreduce>,
       .help = "How gradients are summed between hosts.",
       .more = "auto: tree where sync.reproducible asks for it, which adds in the order of one worker; "
               "else the fastest by the measured links. The others do not keep that order "
               "(docs/collectives.md). Workers of one host always add in the order of the tree.",
       .choices = {"tree", "direct", "ring", "halving", "colors", "auto"}},
      {.key = "sync.shares", .place = at<&Job::sync, &Sync::shares>,
       .help = "How many grains of each batch every worker runs, by rank.",
       .more = "`shares: [5, 3]` gives the first worker five. They must add up to the grains of a batch; 0 is legal. The weights are the same "
               "whatever the shares.",
       .unit = "grains", .range = from(0), .empty = "by sync.mode"},
      {.key = "sync.deadline", .place = at<&Job::sync, &Sync::deadline>,
       .help = "The longest wait for another worker.",
       .more = "When it passes, training ends with a message that names who is missing. It must be "
               "longer than a step of the slowest worker.",
       .range = above(0), .spelling = Spelling::duration, .also = {"timeout"}},
      {.key = "sync.bucket", .place = at<&Job::sync, &Sync::bucket>,
       .help = "How much of the gradient is exchanged between hosts as one.",
       .more = "Small layers share a bucket, large ones are sliced. auto: sizes are tried in the "
               "first steps, and the one with the shortest steps is kept. Sums in the order of the tree "
               "give the same weights whatever the size.",
       .zero = "auto"},
      {.key = "sync.overlap", .place = at<&Job::sync, &Sync::overlap>,
       .help = "Exchange gradients between hosts while the backward pass goes on.",
       .more = "`false` is for comparing: everything is then exchanged between the passes."},

      {.key = "cluster.groups", .place = at<&Job::cluster, &Cluster::groups>,
       .help = "How many groups of workers train without waiting for each other.",
       .more = "Each trains on batches of its own, of train.batch samples, and updates the model, which "
               "servers own. 1: all step together; as many as workers: nobody waits for anybody "
               "(docs/groups.md). auto: as few as give nearly the most updates by the measured links and "
               "speeds; 1 if sync.reproducible.",
       .unit = "groups", .range = from(0), .zero = "auto"},
      {.key = "cluster.servers", .place = at<&Job::cluster, &Cluster::servers>,
       .help = "How many servers own the model where there are groups.",
       .more = "auto: as many as hosts; with cluster.own_servers as many as hide the traffic behind the computing, by the "
               "measured links. With one group, any number but auto has it train against servers, which "
               "gives the same weights and is for comparing.",
       .unit = "servers", .range = from(0), .zero = "auto"},
      {.key = "cluster.own_servers", .place = at<&Job::cluster, &Cluster::own_servers>,
       .help = "Servers are processes of their own, the last ones, instead of threads beside workers."},
      {.key = "cluster.momentum", .place = at<&Job::cluster, &Cluster::momentum>,
       .help = "What the servers of groups, which bring momentum of their own, apply of it: total, measured or a number.",
       .more = "total: train.momentum is both together, so that they apply 1 - 1/groups less, even less than "
               "0. measured: likewise, but the momentum in force is measured, and what they apply corrected by it. "
               "A number, between -1 and 1: that (docs/groups.md).",
       },
      {.key = "cluster.learning_rate", .place = at<&Job::cluster, &Cluster::learning_rate>,
       .help = "What groups do with the learning rate: the same, or scaled by their number.",
       .more = "Groups make steps of 1/groups of their length on average, by the theory that cluster.momentum is "
               "chosen by; scaled makes up for it (docs/groups.md).",
       .choices = {"same", "scaled"}},
      {.key = "cluster.tolerate", .place = at<&Job::cluster, &Cluster::tolerate>,
       .help = "Where a group dies, go on without it from the last checkpoint.",
       .more = "For workers that convoy starts itself (--workers, --hosts). Otherwise the training ends, and says "
               "who died."},

      {.key = "parallel.classifier", .place = at<&Job::parallel, &Parallel::classifier>,
       .help = "How workers share the linear layers at the end of the network.",
       .more = "data: like all others, each worker on its samples. model: each worker has a slice of their outputs, for "
               "everybody's samples, so that activations travel instead of gradients. hybrid: in "
               "parallel.copies copies of slices. merged: one worker has them, for all samples of all groups, and updates them in "
               "place. Only data gives the bits of one worker (docs/classifier.md). auto: the fastest by the measured links "
               "and speeds, for how many of the layers is chosen, too; data if sync.reproducible.",
       .choices = {"data", "model", "hybrid", "merged", "auto"}},
      {.key = "parallel.layers", .place = at<&Job::parallel, &Parallel::layers>,
       .help = "How many of the linear layers at the end parallel.classifier is for: the last ones.",
       .unit = "layers", .range = from(0), .zero = "all"},
      {.key = "parallel.copies", .place = at<&Job::parallel, &Parallel::copies>,
       .help = "hybrid: how many copies of the classifier there are; they must divide the workers.",
       .range = from(1)},
  };
}
// clang-format on

std::vector<Field> make_fields() {
  std::vector<Field> all;
  for (auto* part : {&model_and_data, &training, &learning_rate, &machine}) {
    for (Field& field : part()) all.push_back(std::move(field));
  }
  return all;
}

/// Whether `name` is what people write by mistake for an entry of the table.
template <typename Entry>
bool mistaken_for(std::string_view name, const Entry& entry) {
  return leaf(entry.key) == name || std::ranges::find(entry.also, name) != entry.also.end();
}

/// All keys, of sections and of fields, that are called `name` or mistaken for it.
std::vector<std::string> called(std::string_view name) {
  std::vector<std::string> found;
  for (const Section& section : sections()) {
    if (!section.key.empty() && mistaken_for(name, section)) found.push_back(section.key);
  }
  for (const Field& field : fields()) {
    if (mistaken_for(name, field)) found.push_back(field.key);
  }
  return found;
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> table = make_fields();
  return table;
}

const std::vector<Section>& sections() {
  static const std::vector<Section> table = make_sections();
  return table;
}

const Field* find_field(std::string_view key) {
  const auto found = std::ranges::find(fields(), key, &Field::key);
  return found == fields().end() ? nullptr : &*found;
}

const Section* find_section(std::string_view key) {
  const auto found = std::ranges::find(sections(), key, &Section::key);
  return found == sections().end() ? nullptr : &*found;
}

std::string_view parent(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

std::string_view leaf(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

std::string path_of(std::string_view section, std::string_view name) {
  if (section.empty()) return std::string(name);
  return std::string(section).append(".").append(name);
}

std::vector<std::string> names_in(std::string_view section) {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    if (parent(field.key) == section) names.emplace_back(leaf(field.key));
  }
  for (const Section& child : sections()) {
    if (!child.key.empty() && parent(child.key) == section) names.emplace_back(leaf(child.key));
  }
  return names;
}

std::vector<std::string> keys() {
  std::vector<std::string> all;
  for (const Field& field : fields()) all.push_back(field.key);
  return all;
}

std::string meant_by(std::string_view path) {
  const std::string_view section = parent(path);
  const std::vector<std::string> same_name = called(leaf(path));
  for (const std::string& key : same_name) {
    if (parent(key) == section) return key;
  }
  // The right name in the wrong place is more telling than a similar name in this one.
  if (!same_name.empty()) return same_name.front();
  if (find_section(section) != nullptr) {
    const std::string sibling = nearest(leaf(path), names_in(section));
    if (!sibling.empty()) return path_of(section, sibling);
  } else {
    const std::string right = meant_by(section);
    if (find_section(right) != nullptr) {
      const std::string key = meant_by(path_of(right, leaf(path)));
      return key.empty() ? right : key;
    }
  }
  std::vector<std::string> names;
  for (const std::string& key : keys()) names.emplace_back(leaf(key));
  const std::string elsewhere = nearest(leaf(path), names);
  return elsewhere.empty() ? "" : called(elsewhere).front();
}

}  // namespace convoy::job
