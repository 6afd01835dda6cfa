#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <vector>

/// For the example recommend: made-up ratings of items with tags, and a network with sparse embeddings.

#ifndef USERS
#define USERS 20000
#endif
#ifndef RATINGS
#define RATINGS 40000
#endif
constexpr std::int64_t users = USERS, items = 5000, tags = 50, width = 16, train_ratings = RATINGS,
                       test_ratings = RATINGS / 10, batch_size = 256, epochs = 4;
constexpr double table_rate = 0.1, tower_rate = 1e-3;

struct Ratings {
  torch::Tensor user, item, rating;      // [n]
  std::vector<torch::Tensor> item_tags;  // 1 to 6 tags for each item
};

inline Ratings ratings() {
  auto g = torch::make_generator<torch::CPUGeneratorImpl>(11);
  const auto n = train_ratings + test_ratings;
  const auto skewed = [&](std::int64_t most) {
    return (torch::rand({n}, g).pow(3) * static_cast<double>(most)).to(torch::kLong);
  };
  Ratings data{.user = skewed(users), .item = skewed(items), .rating = {}, .item_tags = {}};
  for (std::int64_t i = 0; i < items; ++i)
    data.item_tags.push_back(torch::randint(
        tags, {torch::randint(1, 7, {1}, g, torch::kLong).item<std::int64_t>()}, g, torch::kLong));
  const auto taste = torch::randn({users, 4}, g), kind = torch::randn({items, 4}, g),
             liked = torch::randn({tags}, g);
  auto tag_score = torch::zeros({items});
  for (std::int64_t i = 0; i < items; ++i)
    tag_score[i] = liked.index_select(0, data.item_tags[static_cast<std::size_t>(i)]).mean();
  data.rating = (taste.index_select(0, data.user) * kind.index_select(0, data.item)).sum(1) / 2 +
                tag_score.index_select(0, data.item) + 0.2 * torch::randn({n}, g);
  return data;
}

struct RecommenderImpl : torch::nn::Module {
  RecommenderImpl() {
    torch::NoGradGuard no_grad;
    user->weight.mul_(0.1), item->weight.mul_(0.1), tag->weight.mul_(0.1);
  }
  /// Users and items [n]; the tags of all items in one list, and the offset of each item's tags [n].
  torch::Tensor forward(torch::Tensor users_, torch::Tensor items_, torch::Tensor tags_,
                        torch::Tensor begins) {
    const auto u = user(users_), i = item(items_), t = tag(tags_, begins);
    return (u * i).sum(1) + tower->forward(torch::cat({u, i, t}, 1)).squeeze(1);
  }
  template <class Options>
  static Options sparse(std::int64_t rows) {
    return Options(rows, width).sparse(true);
  }
  torch::nn::Embedding user =
      register_module("user", torch::nn::Embedding(sparse<torch::nn::EmbeddingOptions>(users)));
  torch::nn::Embedding item =
      register_module("item", torch::nn::Embedding(sparse<torch::nn::EmbeddingOptions>(items)));
  torch::nn::EmbeddingBag tag = register_module(
      "tag", torch::nn::EmbeddingBag(sparse<torch::nn::EmbeddingBagOptions>(tags).mode(torch::kMean)));
  torch::nn::Sequential tower = register_module(
      "tower",
      torch::nn::Sequential(torch::nn::Linear(3 * width, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1)));
};
TORCH_MODULE(Recommender);

/// The tags of these items in one list, and the offset of each item's tags.
inline std::pair<torch::Tensor, torch::Tensor> bags(const Ratings& data, const torch::Tensor& chosen) {
  std::vector<torch::Tensor> all;
  std::vector<std::int64_t> begins;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < chosen.size(0); ++i) {
    const auto& of_item = data.item_tags[static_cast<std::size_t>(chosen[i].item<std::int64_t>())];
    begins.push_back(begin);
    begin += of_item.size(0);
    all.push_back(of_item);
  }
  return {torch::cat(all), torch::tensor(begins, torch::kLong)};
}
