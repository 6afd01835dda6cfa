#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <vector>

/// For the example detect: images with 0 to 5 rectangles, the network, and the loss over lists of boxes.

constexpr std::int64_t side = 64, cells = 8, cell = side / cells, train_images = 512, test_images = 128,
                       batch_size = 16, epochs = 6;
constexpr double learning_rate = 2e-3;

/// Image [3, 64, 64] and boxes [n, 5]: class, centre x and y, width, height, all but the class in pixels.
struct Sample {
  torch::Tensor image, boxes;
};

/// The same image for the same index. Class 0 is brighter in red, 1 in green, 2 in blue.
inline Sample draw(std::int64_t index) {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(index));
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * torch::rand({1}, generator).item<double>();
  };
  auto image = torch::rand({3, side, side}, generator) * 0.3;
  const auto count = static_cast<std::int64_t>(uniform(0, 6));
  auto boxes = torch::zeros({count, 5});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto kind = static_cast<std::int64_t>(uniform(0, 3));
    const double w = std::floor(uniform(8, 24)), h = std::floor(uniform(8, 24));
    const double x = std::floor(uniform(0, side - w)), y = std::floor(uniform(0, side - h));
    image[kind]
        .slice(0, static_cast<std::int64_t>(y), static_cast<std::int64_t>(y + h))
        .slice(1, static_cast<std::int64_t>(x), static_cast<std::int64_t>(x + w)) += 0.6;
    boxes[i] = torch::tensor({static_cast<double>(kind), x + w / 2, y + h / 2, w, h}, torch::kFloat);
  }
  return {image, boxes};
}

struct DetectorImpl : torch::nn::Module {
  static torch::nn::Sequential stage(std::int64_t in, std::int64_t out) {
    return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(2).padding(1)),
                                 torch::nn::BatchNorm2d(out), torch::nn::SiLU());
  }
  /// [N, 3, 64, 64] to [N, 8, 8, 8]: objectness, box (4), classes (3) in each cell.
  torch::Tensor forward(torch::Tensor images) {
    return head(third->forward(second->forward(first->forward(images)))).permute({0, 2, 3, 1});
  }
  torch::nn::Sequential first = register_module("first", stage(3, 16));
  torch::nn::Sequential second = register_module("second", stage(16, 32));
  torch::nn::Sequential third = register_module("third", stage(32, 64));
  torch::nn::Conv2d head = register_module("head", torch::nn::Conv2d(64, 8, 1));
};
TORCH_MODULE(Detector);

struct Losses {
  torch::Tensor box, object, kind;
};

/// `rows` [total, 6]: the image in the batch, then a box as in Sample.
inline Losses detection_loss(const torch::Tensor& output, const torch::Tensor& rows) {
  auto wanted = torch::zeros_like(output.select(-1, 0));
  auto box = output.sum() * 0, kind = output.sum() * 0;
  if (rows.size(0) > 0) {
    const auto image = rows.select(1, 0).to(torch::kLong);
    const auto column = (rows.select(1, 2) / cell).to(torch::kLong).clamp(0, cells - 1);
    const auto row = (rows.select(1, 3) / cell).to(torch::kLong).clamp(0, cells - 1);
    const auto cells_of = output.index({image, row, column});  // [total, 8]
    const auto centre = (cells_of.slice(1, 1, 3).sigmoid() + torch::stack({column, row}, 1)) * cell;
    const auto size = cells_of.slice(1, 3, 5).clamp(-4, 4).exp() * 16;
    const auto low = torch::max(centre - size / 2, rows.slice(1, 2, 4) - rows.slice(1, 4, 6) / 2);
    const auto high = torch::min(centre + size / 2, rows.slice(1, 2, 4) + rows.slice(1, 4, 6) / 2);
    const auto overlap = (high - low).clamp_min(0).prod(1);
    const auto iou = overlap / (size.prod(1) + rows.slice(1, 4, 6).prod(1) - overlap + 1e-6);
    box = (1 - iou).mean();
    kind = torch::cross_entropy_loss(cells_of.slice(1, 5, 8), rows.select(1, 1).to(torch::kLong));
    wanted.index_put_({image, row, column}, iou.detach().clamp_min(0));
  }
  const auto object = torch::binary_cross_entropy_with_logits(output.select(-1, 0), wanted);
  return {box, object, kind};
}

inline torch::Tensor total(const Losses& losses) {
  return 0.5 * losses.box + 4 * losses.object + 0.5 * losses.kind;
}

/// Counts the boxes that some cell with objectness above 0.3 finds, with the right class and an IoU of at
/// least 0.5: {found, boxes}.
inline std::pair<double, double> recall(const torch::Tensor& output, const torch::Tensor& boxes) {
  const auto column = torch::arange(cells).view({1, cells, 1}),
             row = torch::arange(cells).view({cells, 1, 1});
  const auto place = torch::cat({column.expand({cells, cells, 1}), row.expand({cells, cells, 1})}, 2);
  const auto centre = ((output.slice(2, 1, 3).sigmoid() + place) * cell).reshape({-1, 2});
  const auto size = (output.slice(2, 3, 5).clamp(-4, 4).exp() * 16).reshape({-1, 2});
  const auto sure = output.select(2, 0).sigmoid().reshape({-1}) > 0.3;
  const auto kind = output.slice(2, 5, 8).argmax(2).reshape({-1});
  double found = 0;
  for (std::int64_t i = 0; i < boxes.size(0); ++i) {
    const auto box = boxes[i];
    const auto low = torch::max(centre - size / 2, box.slice(0, 1, 3) - box.slice(0, 3, 5) / 2);
    const auto high = torch::min(centre + size / 2, box.slice(0, 1, 3) + box.slice(0, 3, 5) / 2);
    const auto overlap = (high - low).clamp_min(0).prod(1);
    const auto iou = overlap / (size.prod(1) + box.slice(0, 3, 5).prod() - overlap + 1e-6);
    found += ((iou >= 0.5) & sure & kind.eq(box[0].to(torch::kLong))).any().item<bool>() ? 1 : 0;
  }
  return {found, static_cast<double>(boxes.size(0))};
}
