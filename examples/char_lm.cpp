/// A small transformer learns to write like a text, character by character, and prints a sample at each
/// evaluation. The text is the GNU GPL, which every Debian has, or any file: `char_lm --text my_novel.txt
/// --max_steps 5000`.

#include <etude/etude.hpp>
#include <fstream>
#include <iterator>

struct TextArguments {
  ETUDE_STRUCT(
      TextArguments, (std::string, text, "the text to learn from", "/usr/share/common-licenses/GPL-3"),
      (std::int64_t, context, "length of the context, in characters", 64),
      (std::int64_t, width, "size of a character's vector", 96),
      (std::int64_t, layers, "attention layers", 2), (std::int64_t, heads, "attention heads per layer", 4),
      (std::int64_t, sample_length, "characters to write at each evaluation", 240),
      (double, temperature, "sampling temperature: near 0, the likeliest character always wins", 0.7));
};

/// The distinct characters of a text; a character's number is its index.
struct Alphabet {
  explicit Alphabet(const std::string& text) : characters(text) {
    std::sort(characters.begin(), characters.end());
    characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  }
  torch::Tensor encode(const std::string& text) const {
    std::vector<std::int64_t> numbers;
    for (const char c : text) numbers.push_back(static_cast<std::int64_t>(characters.find(c)));
    return torch::tensor(numbers);
  }
  /// Etude stores it with every checkpoint.
  void save(const std::filesystem::path& directory) const {
    std::ofstream(directory / "alphabet.txt") << characters;
  }

  std::string characters;
};

/// Windows of a text: `context` characters, and the same window shifted by one.
struct Windows {
  torch::Tensor text;
  std::int64_t context;

  std::size_t size() const { return static_cast<std::size_t>(text.size(0) - context); }
  std::pair<torch::Tensor, torch::Tensor> get(std::size_t index) const {
    const auto start = static_cast<std::int64_t>(index);
    return {text.narrow(0, start, context), text.narrow(0, start + 1, context)};
  }
};

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t width, std::int64_t heads_)
      : heads(heads_),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}

  torch::Tensor forward(torch::Tensor x, torch::Tensor mask) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts =
        qkv(norm1(x)).reshape({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const auto scores =
        parts[0].matmul(parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(width / heads));
    const auto mixed = scores.masked_fill(mask, -1e9).softmax(-1).matmul(parts[2]);
    x = x + out(mixed.transpose(1, 2).reshape({batch, length, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv, out;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  TransformerImpl(std::int64_t characters, const TextArguments& text)
      : embedding(register_module("embedding", torch::nn::Embedding(characters, text.width))),
        position(register_parameter("position", 0.02 * torch::randn({text.context, text.width}))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({text.width})))),
        head(register_module("head", torch::nn::Linear(text.width, characters))) {
    for (std::int64_t i = 0; i < text.layers; ++i)
      blocks.push_back(register_module(fmt::format("block{}", i), Block(text.width, text.heads)));
  }

  /// Characters [batch, length] to logits [batch, length, characters].
  torch::Tensor forward(torch::Tensor characters) {
    const auto length = characters.size(1);
    const auto mask = torch::ones({length, length}, characters.options().dtype(torch::kBool)).triu(1);
    auto x = embedding(characters) + position.narrow(0, 0, length);
    for (auto& block : blocks) x = block(x, mask);
    return head(norm(x));
  }

  torch::nn::Embedding embedding;
  torch::Tensor position;
  std::vector<Block> blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
};
TORCH_MODULE(Transformer);

/// Returns the model's continuation of the words in `written`.
std::string continued(etude::Model& model, const Alphabet& alphabet, const TextArguments& text,
                      std::string written) {
  const auto device = model.parameters().front().device();
  for (std::int64_t i = 0; i < text.sample_length; ++i) {
    const auto from = std::max<std::int64_t>(0, static_cast<std::int64_t>(written.size()) - text.context);
    const auto seen = alphabet.encode(written.substr(static_cast<std::size_t>(from))).unsqueeze(0).to(device);
    const torch::Tensor logits = model.forward(seen)[0][0][-1];
    const auto next = torch::multinomial((logits / text.temperature).softmax(-1), 1).item<std::int64_t>();
    written += alphabet.characters[static_cast<std::size_t>(next)];
  }
  return written;
}

/// Continues the first words of the text.
struct Writer {
  TextArguments text = {};
  std::string prompt = {};
  std::vector<etude::Sample> operator()(const etude::Evaluate& e) const {
    const auto& alphabet = e.processing_class->as<Alphabet>();
    return {etude::text_sample("text", continued(e.model, alphabet, text, prompt))};
  }
};

/// Prints the texts that are logged; a tracker in the list of callbacks would show them, too.
struct PrintTexts {
  void on(const etude::LogSamples& e) const {
    for (const auto& sample : e.samples)
      etude::print("--- after {} steps:\n{}\n---\n", e.state.global_step,
                   std::get<std::string>(sample.content));
  }
};

void train(const etude::TrainingArguments& args, const TextArguments& text) {
  std::ifstream file(text.text);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (static_cast<std::int64_t>(content.size()) < 20 * text.context)
    throw etude::DataError(
        fmt::format("text is {}: must be a file of at least {} characters", text.text, 20 * text.context));
  const Alphabet alphabet(content);
  const auto numbers = alphabet.encode(content);
  const auto split = numbers.size(0) * 9 / 10;

  torch::manual_seed(static_cast<std::uint64_t>(args.seed));
  etude::Trainer<etude::EvaluationSamplesCallback, PrintTexts> trainer(
      {.model = Transformer(static_cast<std::int64_t>(alphabet.characters.size()), text),
       .args = args,
       .loss =
           [](torch::Tensor logits, torch::Tensor next) {
             return torch::nn::functional::cross_entropy(logits.flatten(0, 1), next.flatten());
           },
       .train_dataset = Windows{numbers.narrow(0, 0, split), text.context},
       .eval_dataset = Windows{numbers.narrow(0, split, numbers.size(0) - split), text.context},
       .compute_metrics = etude::metrics::accuracy,
       .processing_class = alphabet},
      etude::EvaluationSamplesCallback{.make = Writer{text, content.substr(0, 16)}});
  fmt::print("{} parameters, {} characters to learn from\n", trainer.get_num_trainable_parameters(), split);
  trainer.train({.resume_from_checkpoint = etude::if_any});  // run the same command again to resume
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "char_lm_output",
                                          .per_device_train_batch_size = 32,
                                          .per_device_eval_batch_size = 64,
                                          .max_steps = 600,
                                          .learning_rate = 2e-3,
                                          .weight_decay = 0.1,
                                          .lr_scheduler_type = etude::SchedulerType::cosine,
                                          .warmup_steps = 50,
                                          .eval_strategy = etude::IntervalStrategy::steps,
                                          .eval_steps = 200,
                                          .save_strategy = etude::SaveStrategy::no,
                                          .logging_steps = 50};
  return etude::run(argc, argv, defaults, TextArguments{}, train);
}
