# The pip wheel's config looks for a kineto that is inside libtorch_cpu already, and warns that it is not there.
set(kineto_LIBRARY c10)

# Torch's config may take the Caffe2 of another LibTorch on this machine, so name its own.
if(NOT Torch_DIR AND DEFINED ENV{Torch_DIR})
  set(Torch_DIR $ENV{Torch_DIR})
endif()
if(Torch_DIR)
  set(Caffe2_DIR ${Torch_DIR}/../Caffe2)
endif()
