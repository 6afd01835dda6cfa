// The handwritten loop that examples/distill.cpp replaces.

#include "../data/distill.hpp"

#include <cstdio>

int main() {
  auto teacher = trained_teacher();
  torch::manual_seed(42);
  auto student = convolutions(8), slow = convolutions(8);
  const auto follow = [&](double share) {
    const torch::NoGradGuard no_grad;
    const auto source = student->parameters(), target = slow->parameters();
    for (std::size_t i = 0; i < source.size(); ++i) target[i].lerp_(source[i], share);
    const auto buffers = student->buffers(), copies = slow->buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) copies[i].copy_(buffers[i]);
  };
  follow(1);
  for (auto& parameter : slow->parameters()) parameter.requires_grad_(false);
  slow->eval();
  torch::optim::SGD optimizer(student->parameters(),
                              torch::optim::SGDOptions(learning_rate).momentum(momentum));
  const auto train = images(train_images, 2), test = images(test_images, 3);

  const auto accuracy = [&](torch::nn::Sequential& net) {
    return net->forward(test.images).argmax(1).eq(test.labels).to(torch::kFloat).mean().item<double>();
  };

  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    student->train();
    double distilled = 0, consistent = 0;
    std::int64_t batches = 0;
    for (const auto& batch : train.images.split(batch_size)) {
      const auto one = view(batch), two = view(batch);
      torch::Tensor of_teacher, of_slow;
      {
        const torch::NoGradGuard no_grad;
        of_teacher = teacher->forward(one), of_slow = slow->forward(two);
      }
      const auto output = student->forward(one);
      const auto from_teacher = distance(output, of_teacher), from_slow = distance(output, of_slow);
      const auto loss = from_teacher + consistency * from_slow;
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      follow(1 - decay);

      distilled += from_teacher.item<double>(), consistent += from_slow.item<double>(), ++batches;
    }
    student->eval();
    const torch::NoGradGuard no_grad;
    std::printf("epoch %ld teacher %.9f slow %.9f accuracy %.4f slow_accuracy %.4f\n",
                static_cast<long>(epoch), distilled / static_cast<double>(batches),
                consistent / static_cast<double>(batches), accuracy(student), accuracy(slow));
  }
  torch::save(slow, "student.pt");
}
